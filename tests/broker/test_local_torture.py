"""Readers of mapped files see what a stock consumer sees, while the broker is killed and segments roll and expire.

One writer, four readers in processes of their own, a stock consumer; after every so many acknowledged records something
happens to the broker.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.support.administration import create_topic
from tests.support.cluster_process import ClusterProcess
from tests.support.forms import by_form
from tests.support.hang import wait_until
from tests.support.raw_client import RawClient
from tests.support.torture_reader import NATURES, ROW, payload

pytestmark = pytest.mark.compat

ROOT = Path(__file__).resolve().parent.parent.parent
TOPIC = "torture"
PARTITIONS = 2
ROUNDS = by_form(4, long=500)
RECORDS_PER_ROUND = 2000
OUTSTANDING_MAX = 2000
SECONDS_MAX = 120.0
"""A hang guard for each thing that is waited for."""
CONFIG = {
    "log.segment.bytes": "200000",
    "log.index.interval.bytes": "2000",
    "log.retention.bytes": "3000000",
    "log.retention.check.interval.ms": "50",
    "num.partitions": str(PARTITIONS),
}
Rows = list[dict[int, int]]
"""By partition: checksum of the value by offset."""


class Writer:
    """An idempotent producer that keeps a ledger of what was acknowledged."""

    def __init__(self, bootstrap_servers: str, rng: random.Random) -> None:
        self.ledger: Rows = [{} for _ in range(PARTITIONS)]
        self.acknowledged = 0
        self._rng = rng
        self._given = [0] * PARTITIONS
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "batch.size": 60_000, "log_level": 0}
        )

    def write(self, count: int) -> None:
        """Until so many more are acknowledged."""
        goal = self.acknowledged + count
        deadline = time.monotonic() + SECONDS_MAX
        while self.acknowledged < goal:
            assert time.monotonic() < deadline, f"{self.acknowledged} acknowledged, not {goal}"
            if len(self._producer) >= OUTSTANDING_MAX:
                self._producer.poll(0.01)
                continue
            partition = self._rng.randrange(PARTITIONS)
            size = self._rng.choice((0, 10, 100, 1000, 1000, 5000))
            value = payload(partition, self._given[partition], size)
            self._given[partition] += 1
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0
        del self._producer
        assert [len(rows) for rows in self.ledger] == self._given

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        assert offset not in self.ledger[partition], "two records at one offset"
        self.ledger[partition][offset] = crc32(value)
        self.acknowledged += 1


class StockConsumer(threading.Thread):
    """Reads everything it can, from the beginning of what there is."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(name="stock consumer")
        self.seen: Rows = [{} for _ in range(PARTITIONS)]
        self.positions = [0] * PARTITIONS
        self.stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "torture",
                "log_level": 0,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def run(self) -> None:
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while not self.stopping:
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is not None:
                    continue
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert value is not None
                self.seen[partition][offset] = crc32(value)
                self.positions[partition] = offset + 1
        self._consumer.close()


class Reader:
    """One process of tests/support/torture_reader.py."""

    def __init__(self, cluster_id: str, nature: str, path: Path) -> None:
        self.nature = nature
        self._progress, self._seen = path / f"{nature}.progress", path / f"{nature}.seen"
        self._progress.write_bytes(bytes(8 * PARTITIONS))
        arguments = [cluster_id, TOPIC, str(PARTITIONS), nature, str(self._progress), str(self._seen)]
        command = [sys.executable, "-m", "tests.support.torture_reader", *arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def has_come_to(self, offsets: list[int]) -> bool:
        assert self._process.poll() is None, self.last_words()
        positions = struct.unpack(f"={PARTITIONS}q", self._progress.read_bytes())
        return all(at >= wanted for at, wanted in zip(positions, offsets, strict=True))

    def stop_at(self, ends: list[int]) -> Rows:
        """What it has seen, up to these offsets; it must have ended well: -7 would be a SIGBUS."""
        try:
            _, errors = self._process.communicate(" ".join(map(str, ends)) + "\n", timeout=SECONDS_MAX)
        except BrokenPipeError:
            errors = self.last_words()
        assert self._process.returncode == 0, f"{self.nature}: {self._process.returncode}\n{errors}"
        rows: Rows = [{} for _ in range(PARTITIONS)]
        for partition, offset, checksum in ROW.iter_unpack(self._seen.read_bytes()):
            rows[partition][offset] = checksum
        return rows

    def last_words(self) -> str:
        return f"{self.nature} ended with {self._process.wait()}: {self._process.communicate()[1]}"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Torture:
    """The whole of it: `run`, then `check`."""

    def __init__(self, path: Path) -> None:
        self.rng = random.Random(ROUNDS)
        self.path = path
        self.config = CONFIG
        self.broker = ClusterProcess(self.config, path / "log")
        self.config = {**CONFIG, "listeners": f"PLAINTEXT://{self.broker.bootstrap_servers}"}
        with RawClient(self.broker.bootstrap_servers, client_id="torture") as client:
            create_topic(client, TOPIC)
        self.writer = Writer(self.broker.bootstrap_servers, self.rng)
        self.consumer = StockConsumer(self.broker.bootstrap_servers)
        self.consumer.start()
        self.readers = [Reader(self.broker.cluster_id, nature, path) for nature in NATURES]

    def run(self) -> None:
        events = [self.kill, self.delete_records, self.stop, self.delete_everything]
        for number in range(ROUNDS):
            self.writer.write(RECORDS_PER_ROUND)
            self.eager_readers_come_near()
            events[number % len(events)]()
        self.writer.write(RECORDS_PER_ROUND)
        self.writer.finish()

    def eager_readers_come_near(self) -> None:
        """So that what happens next happens to readers that are reading. Others may lag and meet deleted records."""
        ends = [max(rows, default=-1) for rows in self.writer.ledger]
        for reader in self.readers[:2]:
            wait_until(partial(reader.has_come_to, ends), partial("{} does not come to {}".format, reader.nature, ends))

    def kill(self) -> None:
        """In the middle of what the writer has outstanding."""
        self.broker.kill()
        self.broker = ClusterProcess(self.config, self.path / "log")

    def stop(self) -> None:
        self.broker.stop()
        self.broker = ClusterProcess(self.config, self.path / "log")

    def delete_records(self) -> None:
        ends = [max(rows) for rows in self.writer.ledger]
        self.delete_before([max(end - self.rng.randrange(300), 0) for end in ends])

    def delete_everything(self) -> None:
        self.delete_before([-1] * PARTITIONS)

    def delete_before(self, offsets: list[int]) -> None:
        """Not by a stock client: librdkafka's has, for a while after a restart, no leader to send it to."""
        wanted = tuple(
            DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in enumerate(offsets)
        )
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=TOPIC, partitions=wanted),), timeout_ms=1000)
        with RawClient(self.broker.bootstrap_servers, client_id="torture") as client:
            (answered,) = client.call_any(request).topics
        assert all(result.error_code == ErrorCode.NONE for result in answered.partitions), answered

    def check(self) -> None:
        ledger = self.writer.ledger
        ends = [len(rows) for rows in ledger]
        assert [sorted(rows) for rows in ledger] == [list(range(end)) for end in ends]
        wait_until(
            lambda: self.consumer.positions == ends, lambda: f"the consumer is at {self.consumer.positions}, not {ends}"
        )
        self.consumer.stopping = True
        self.consumer.join()
        seen = {reader.nature: reader.stop_at(ends) for reader in self.readers}
        for nature, rows in {**seen, "stock": self.consumer.seen}.items():
            for partition in range(PARTITIONS):
                assert rows[partition].items() <= ledger[partition].items(), f"{nature} saw what was never written"
        for nature, rows in seen.items():
            for partition in range(PARTITIONS):
                assert ends[partition] - 1 in rows[partition], f"{nature} has not come to the end"
        for nature in NATURES[:2]:
            count = sum(len(rows) for rows in seen[nature])
            assert count > sum(ends) // 2, f"{nature} has seen {count} of {sum(ends)}: it was no witness"
        self.no_reader_is_left_in_the_broker()
        self.broker.stop()

    def no_reader_is_left_in_the_broker(self) -> None:
        files = Path(f"/proc/{self.broker.pid}/fd")

        def left() -> list[str]:
            names = [os.readlink(file) for file in files.iterdir() if os.path.lexists(file)]
            return [name for name in names if "raylog-" in name or "eventfd" in name]

        wait_until(lambda: len(left()) <= self.own_eventfds, lambda: f"the broker holds {left()}")

    own_eventfds = 2
    """Of libuv's loops, at most."""

    def end(self) -> None:
        """Whatever has happened: nothing of it goes on."""
        self.consumer.stopping = True
        self.consumer.join()
        for reader in self.readers:
            reader.kill()


def test_readers_agree_with_a_stock_consumer(tmp_path: Path) -> None:
    torture = Torture(tmp_path)
    try:
        torture.run()
        torture.check()
    finally:
        torture.end()
