"""An idempotent producer that never gives up: what was acknowledged to it is the ledger of the run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.world import World

IN_FLIGHT_MAX = 5
"""What Kafka allows an idempotent producer, and brokers remember."""
RETRIED = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
DUPLICATES_ARE_FINE = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


@dataclass(slots=True)
class _Batch:
    base_sequence: int
    values: list[bytes]
    codec: Codec


class Producer(SimClient):
    """Writes `batch_count` batches to one partition, in order, under one producer id for its whole life."""

    def __init__(self, world: World, host: BrokerHost, tp: TopicPartition, *, batch_count: int, name: str) -> None:
        super().__init__(world, host, name)
        self.tp = tp
        self.acknowledged: dict[int, bytes] = {}
        """Offset -> value, for every record whose batch was acknowledged."""
        self.sent: list[bytes] = []
        """Every value, in the order in which the log must hold them."""
        self._producer_id: int | None = None
        self._topic_id: UUID | None = None
        self._unacknowledged: deque[_Batch] = deque()
        self._in_flight = 0
        self._batches_left = batch_count
        self._next_sequence = 0

    def connected(self) -> None:
        self._in_flight = 0
        topic = MetadataRequestTopic(name=self.tp.topic)
        self.send(MetadataRequest(topics=(topic,), allow_auto_topic_creation=True), self._described)

    def _described(self, answer: Any) -> None:
        (topic,) = answer.topics
        ready = topic.error_code == ErrorCode.NONE and len(topic.partitions) > self.tp.partition
        if not ready or topic.partitions[self.tp.partition].error_code != ErrorCode.NONE:
            self.reconnect()
            return
        self._topic_id = topic.topic_id
        if self._producer_id is None:
            self.send(InitProducerIdRequest(transaction_timeout_ms=-1), self._initialised)
        else:
            self._pump()

    def _initialised(self, answer: Any) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.reconnect()
            return
        self._producer_id = answer.producer_id
        self._pump()

    def _pump(self) -> None:
        while self._in_flight < IN_FLIGHT_MAX:
            if self._in_flight == len(self._unacknowledged):
                if not self._batches_left:
                    break
                self._unacknowledged.append(self._new_batch())
            batch = self._unacknowledged[self._in_flight]
            self._in_flight += 1
            self.send(self._request(batch), partial(self._answered, batch))
        if not self._unacknowledged and not self._batches_left:
            self.finished = True

    def _new_batch(self) -> _Batch:
        rng = self.world.rng
        self._batches_left -= 1
        count = rng.choice((1, 1, 2, 5, 20))
        values = [
            b"%s/%d" % (str(self.tp).encode(), len(self.sent) + number) + b"." * rng.choice((0, 10, 300))
            for number in range(count)
        ]
        self.sent += values
        batch = _Batch(self._next_sequence, values, rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4)))
        self._next_sequence += count
        return batch

    def _request(self, batch: _Batch) -> ProduceRequest:
        now_ms = self.world.now().wall_ms
        assert self._producer_id is not None
        records = build_batch(
            [NewRecord(None, value, now_ms) for value in batch.values],
            codec=batch.codec,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=batch.base_sequence,
        )
        partition = ProducePartition(index=self.tp.partition, records=memoryview(records))
        assert self._topic_id is not None
        topic = ProduceTopic(name=self.tp.topic, topic_id=self._topic_id, partitions=[partition])
        return ProduceRequest(acks=-1, timeout_ms=1000, topics=[topic])

    def _answered(self, batch: _Batch, answer: Any) -> None:
        result = answer.responses[0].partitions[0]
        code, first = result.error_code, self._unacknowledged[0]
        if code in DUPLICATES_ARE_FINE and result.base_offset >= 0:
            assert batch is first, "answers came out of order"
            self._unacknowledged.popleft()
            self._in_flight -= 1
            for number, value in enumerate(batch.values):
                offset = result.base_offset + number
                assert offset not in self.acknowledged, f"offset {offset} was acknowledged twice"
                self.acknowledged[offset] = value
            generation = self.generation
            pause_ms = self.world.rng.choice((0, 0, 20, 200))
            self.world.after(pause_ms, lambda: self._pump() if generation == self.generation else None)
            return
        follows_a_failure = batch is not first
        if code in RETRIED or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and follows_a_failure):
            self.world.marks[f"produce {code.name}"] += 1
            self.reconnect()
            return
        raise AssertionError(f"{self.tp}: batch at sequence {batch.base_sequence} was refused with {code.name}")
