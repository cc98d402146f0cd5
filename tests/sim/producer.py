"""An idempotent producer that retries forever; its acknowledged records are the ledger of the run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.producer_ids import GivenProducerIds
from tests.sim.replica_watch import ReplicaWatch
from tests.sim.world import World

IN_FLIGHT_MAX = 5
"""Kafka's limit for an idempotent producer, and the number of batches that brokers remember."""
PAUSES_MS = (0, 0, 0, 0, 50, 500)
"""Pause between batches, so that the producer is active during the faults."""
RETRIED = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
MAY_BE_WRITTEN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
DUPLICATES_ARE_FINE = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


@dataclass(slots=True)
class _Batch:
    base_sequence: int
    values: list[bytes]
    codec: Codec


class Producer(SimClient):
    """Writes `batch_count` batches to one partition, in order, under one producer id for its whole life."""

    def __init__(
        self,
        world: World,
        hosts: list[BrokerHost],
        tp: TopicPartition,
        given: GivenProducerIds,
        replica_watch: ReplicaWatch,
        *,
        batch_count: int,
        name: str,
    ) -> None:
        super().__init__(world, hosts, name)
        self.tp = tp
        self.acknowledged: dict[int, bytes] = {}
        """Offset -> value, for every record whose batch was acknowledged."""
        self.sent: list[bytes] = []
        """Every value, in the order in which the log must hold them."""
        self._given = given
        self._replica_watch = replica_watch
        self._producer_id: int | None = None
        self._topic_id: UUID | None = None
        self._leader = BrokerId(-1)
        self._unacknowledged: deque[_Batch] = deque()
        self._in_flight = 0
        """The number of them that were sent in this round."""
        self._unanswered = 0
        self._failed = False
        """Whether one of them was rejected: then nothing new is sent until all are answered."""
        self._in_doubt = False
        """Whether one of them was rejected but may be in the log."""
        self._batches_left = batch_count
        self._next_sequence = 0
        self._due_ms = 0
        """The time of the next send."""

    def begin(self) -> None:
        self._in_flight = self._unanswered = 0
        self._failed = self._in_doubt = False
        self.describe(self.tp.topic, self._described, create=True)

    def _described(self, topic: Any) -> None:
        ready = topic.error_code == ErrorCode.NONE and len(topic.partitions) > self.tp.partition
        if not ready or topic.partitions[self.tp.partition].error_code != ErrorCode.NONE:
            self.restart()
            return
        self._topic_id = topic.topic_id
        self._leader = topic.partitions[self.tp.partition].leader_id
        if self._producer_id is None:
            self.ask(self.any_broker(), InitProducerIdRequest(transaction_timeout_ms=-1), self._initialised)
        else:
            self._pump()

    def _initialised(self, answer: Any) -> None:
        if not self._given.is_new(answer):
            self.restart()
            return
        self._producer_id = answer.producer_id
        self._pump()

    def _pump(self) -> None:
        while self._in_flight < IN_FLIGHT_MAX and not self._failed:
            if self._in_flight == len(self._unacknowledged):
                if not self._batches_left or self.world.time_ms < self._due_ms:
                    break
                self._unacknowledged.append(self._new_batch())
            batch = self._unacknowledged[self._in_flight]
            self._in_flight += 1
            self._unanswered += 1
            self.ask(self._leader, self._request(batch), partial(self._answered, batch))
        if not self._in_flight and self._batches_left:
            self.at(self._due_ms - self.world.time_ms, self._pump)
        self.finished = not self._unacknowledged and not self._batches_left

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
        pause_ms = rng.choice(PAUSES_MS)
        self._due_ms = self.world.time_ms + pause_ms
        self.at(pause_ms, self._pump)
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
        self._unanswered -= 1
        if code in DUPLICATES_ARE_FINE and batch is not first and self._in_doubt:
            self.world.marks["acknowledged behind a batch in doubt"] += 1  # when it is retried it will be a duplicate
            if not self._unanswered:
                self.restart()
            return
        if code in DUPLICATES_ARE_FINE and result.base_offset >= 0:
            assert batch is first, f"{self.tp}: a batch was written before an earlier one"
            assert self._topic_id is not None
            assert self._producer_id is not None
            self._replica_watch.acknowledged(
                self._topic_id,
                self.tp.partition,
                base_offset=result.base_offset,
                count=len(batch.values),
                producer_id=self._producer_id,
                base_sequence=batch.base_sequence,
            )
            self._unacknowledged.popleft()
            self._in_flight -= 1
            for number, value in enumerate(batch.values):
                offset = result.base_offset + number
                assert offset not in self.acknowledged, f"offset {offset} was acknowledged twice"
                self.acknowledged[offset] = value
            self._pump()
            return
        out_of_order = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # A leader that does not know of its successor lacks the batches sent to that one, and can only return this.
        deposed = self._replica_watch.elected(self.tp) != self._leader
        self.world.marks["produce refused by a deposed leader"] += out_of_order and batch is first and deposed
        if code in RETRIED or (out_of_order and (batch is not first or deposed)):
            self.world.marks[f"produce {code.name}"] += 1
            self._failed = True
            self._in_doubt = self._in_doubt or code in MAY_BE_WRITTEN
            if not self._unanswered or self.world.rng.random() < 0.3:
                self.restart()
            return
        raise AssertionError(f"{self.tp}: batch at sequence {batch.base_sequence} was refused with {code.name}")
