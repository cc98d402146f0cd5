"""A client that produces and reads on one connection while others do harm, and notices every effect on itself."""

from __future__ import annotations

import os
import threading
import time

from raylog.core.errors import ErrorCode
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_batches
from tests.support.connection import BlockingConnection, connect_tcp

TOPIC = "victim"
PAUSE_SECONDS = 0.005


class Victim:
    """A thread from construction until `stop`, which raises what went wrong. It opens one connection only."""

    def __init__(self, port: int) -> None:
        self.latencies_ms: list[float] = []
        """Of each produced record."""
        self._connection = BlockingConnection(connect_tcp("127.0.0.1", port), client_id="victim")
        found = self._described()
        self.topic_id, self._leader = found.topic_id, _leader(found)
        self._acknowledged: list[tuple[int, bytes]] = []
        """Offset and value of each record."""
        self._first_offset: int | None = None
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="victim")
        self._thread.start()

    def stop(self) -> None:
        """Raises AssertionError or KafkaError if the client was disturbed."""
        self._stopping.set()
        self._thread.join()
        try:
            if self._failure is not None:
                raise self._failure
            assert _leader(self._described()) == self._leader
            self._read_back()
        finally:
            self._connection.close()

    def latency(self) -> str:
        ordered = sorted(self.latencies_ms)
        return f"{ordered[len(ordered) // 2]:.1f} ms, at worst {ordered[-1]:.1f} ms"

    def _run(self) -> None:
        try:
            while not self._stopping.wait(PAUSE_SECONDS):
                self._produce()
        except BaseException as error:
            self._failure = error

    def _produce(self) -> None:
        value = os.urandom(20)
        batch = build_batch([NewRecord(None, value, int(time.time() * 1000))])
        partition = ProducePartition(index=0, records=memoryview(batch))
        topic = ProduceTopic(name=TOPIC, topic_id=self.topic_id, partitions=[partition])
        begin = time.perf_counter()
        result = (
            self._connection.call(ProduceRequest(acks=-1, timeout_ms=30_000, topics=[topic])).responses[0].partitions[0]
        )
        self.latencies_ms.append(1000 * (time.perf_counter() - begin))
        assert result.error_code == ErrorCode.NONE, result
        self._acknowledged.append((result.base_offset, value))

    def _read_back(self) -> None:
        """Every acknowledged record is at its offset, and there are no others."""
        offset = first = self._acknowledged[0][0]
        read: list[tuple[int, bytes | None]] = []
        while len(read) < len(self._acknowledged):
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = FetchTopic(name=TOPIC, topic_id=self.topic_id, partitions=[wanted])
            response = self._connection.call(FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[topic]))
            partition = response.responses[0].partitions[0]
            assert partition.error_code == ErrorCode.NONE, partition
            found = [(each.offset, each.value) for each in read_batches(partition.records[0])]
            assert found, f"no records at offset {offset}"
            read += found
            offset = read[-1][0] + 1
        assert [each for each in read if each[0] >= first] == self._acknowledged

    def _described(self) -> MetadataResponseTopic:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),), allow_auto_topic_creation=False)
        topic: MetadataResponseTopic
        [topic] = self._connection.call(request).topics
        assert topic.error_code == ErrorCode.NONE, topic
        return topic


def _leader(topic: MetadataResponseTopic) -> list[tuple[int, int, int]]:
    return [(each.partition_index, each.leader_id, each.leader_epoch) for each in topic.partitions]
