"""(shell) Compares the replicas of partitions, batch by batch, as their brokers return them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from raylog.client.admin.partitions import OffsetSpec
from raylog.client.admin.topics import TopicDescription
from raylog.client.blocking_calls import BlockingCalls
from raylog.client.partition_calls import fetch, offset_for
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import BatchHeader, crc_is_valid, split_batches
from raylog.protocol.records.reader import whole_batches

FETCH_BYTES: Final = 1 << 20
CALL_SECONDS: Final = 10.0
"""For a broker that does not answer."""


class ReplicaCheck(NamedTuple):
    """What was found in one partition, from its log start to the high watermark at the beginning."""

    tp: TopicPartition
    leader: int | None
    start_offset: int
    end_offset: int
    batches: int
    """Of the leader."""
    size_bytes: int
    behind: dict[int, int]
    """Offsets that a follower did not have yet, if there are any."""
    problems: dict[int, str]
    """By broker."""


def check_replicas(calls: BlockingCalls, topic: TopicDescription, partition: int) -> ReplicaCheck:
    """Compare every follower with the leader. Raises KafkaError if the leader does not answer."""
    described, tp = topic.partitions[partition], TopicPartition(topic.name, partition)
    if described.leader is None:
        return ReplicaCheck(tp, None, 0, 0, 0, 0, {}, dict.fromkeys(described.replicas, "the partition has no leader"))
    start = calls.run(offset_for(tp, OffsetSpec.EARLIEST), CALL_SECONDS)
    end = calls.run(offset_for(tp, OffsetSpec.LATEST), CALL_SECONDS)
    order = [described.leader, *(each for each in described.replicas if each != described.leader)]
    return _Comparison(calls, tp, topic.topic_id, order, start, end).run()


class _Comparison:
    """One run. The first broker is the leader."""

    def __init__(
        self, calls: BlockingCalls, tp: TopicPartition, topic_id: UUID, brokers: Sequence[int], start: int, end: int
    ) -> None:
        self._calls = calls
        self._tp = tp
        self._topic_id = topic_id
        self._leader = brokers[0]
        self._start = start
        self._end = end
        self._followers = {broker: self._batches(broker) for broker in brokers[1:]}
        self._behind: dict[int, int] = {}
        self._problems: dict[int, str] = {}

    def run(self) -> ReplicaCheck:
        batches = size_bytes = 0
        try:
            for wanted in self._batches(self._leader):
                batches += 1
                size_bytes += wanted.size_bytes
                for broker, found in list(self._followers.items()):
                    if not self._agrees(broker, found, wanted):
                        del self._followers[broker]
        except _Damaged as error:
            self._problems[self._leader] = str(error)
        return ReplicaCheck(
            self._tp, self._leader, self._start, self._end, batches, size_bytes, self._behind, self._problems
        )

    def _agrees(self, broker: int, found: Iterator[BatchHeader], wanted: BatchHeader) -> bool:
        """Whether the next batch of a follower is that of the leader; if not, the follower is done."""
        try:
            header = next(found, None)
        except (_Damaged, KafkaError) as error:
            self._problems[broker] = error.message if isinstance(error, KafkaError) else str(error)
            return False
        if header is None:
            self._behind[broker] = self._end - wanted.base_offset
            return False
        if header != wanted:
            self._problems[broker] = f"offset {wanted.base_offset}: the batch differs from the leader's"
            return False
        return True

    def _batches(self, broker: int) -> Iterator[BatchHeader]:
        """The headers of a replica, whose checksums are verified. Raises _Damaged and KafkaError."""
        offset = self._start
        while offset < self._end:
            asked = fetch(
                self._tp,
                self._topic_id,
                offset,
                max_bytes=FETCH_BYTES,
                max_wait_ms=0,
                committed=False,
                broker_id=broker,
            )
            batches = self._calls.run(asked, CALL_SECONDS).batches
            size_bytes, following = whole_batches(batches)
            if not size_bytes:
                return
            for position, header in split_batches(batches[:size_bytes]):
                if not crc_is_valid(batches, position, header):
                    raise _Damaged(f"offset {header.base_offset}: the checksum of the batch is wrong")
                if header.next_offset > offset and header.base_offset < self._end:
                    yield header
            offset = following


class _Damaged(Exception):
    """A batch of a replica whose checksum is wrong."""
