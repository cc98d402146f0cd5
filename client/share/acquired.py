"""Records that a member of a share group has acquired from a leader, decoded as they are asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from raylog.client.consumer.fetched import FetchedBatches
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import MalformedBatch
from raylog.protocol.share import AcknowledgeType


class ShareRecord(NamedTuple):
    """One record. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int
    """How often the record was delivered to a member of the group, this time included."""


Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Leader(NamedTuple):
    """The broker from which the records of a partition were acquired. Acknowledgements are sent to it."""

    node_id: int
    topic_id: UUID
    tp: TopicPartition

    @property
    def partition(self) -> tuple[UUID, int]:
        return self.topic_id, self.tp.partition


class AcquiredRange(NamedTuple):
    """Consecutive offsets that were delivered equally often. `last_offset` is inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(slots=True, eq=False)
class Held:
    """One record that was acquired and is not done."""

    record: ShareRecord
    leader: Leader
    kind: AcknowledgeType | None = None
    """What the program has said of it."""


class AcquiredRecords:
    """What one response has brought of a partition. Each offset is in `take`, in `gaps`, or in `rejected`, once."""

    def __init__(
        self, leader: Leader, fetched: FetchedBatches, ranges: Sequence[AcquiredRange], *, expires_ms: int
    ) -> None:
        """`ranges` are in order, and do not overlap. `expires_ms` is when the acquisition lock ends (monotonic)."""
        self.leader = leader
        self.expires_ms = expires_ms
        self.gaps: list[int] = []
        """Acquired offsets without a record, as far as the records were taken."""
        self.rejected: list[int] = []
        """Acquired offsets of batches that cannot be read."""
        self._fetched = fetched
        self._ranges = list(ranges)
        self._at = 0
        """The range of offsets that is searched for the next record."""
        self._next_offset = ranges[0].first_offset
        """The first offset of that range of which nothing is known yet."""

    @property
    def finished(self) -> bool:
        return self._at >= len(self._ranges)

    def take(self, count: int) -> list[Held]:
        """At most `count` further records.

        Raises MalformedBatch at a batch that cannot be read, in a call of its own: its offsets are rejected.
        """
        taken: list[Held] = []
        while len(taken) < count and not self.finished:
            try:
                records = self._fetched.take(count - len(taken))
            except MalformedBatch as error:
                if taken:
                    break
                self._pass_over(error)
                raise
            for record in records:
                self.gaps += self._offsets_before(record.offset)
                if self._is_acquired(record.offset):
                    made = ShareRecord(*record, self._ranges[self._at].delivery_count)
                    taken.append(Held(made, self.leader))
                    self._step(record.offset + 1)
            if self._fetched.finished:
                self.gaps += self._offsets_before(self._ranges[-1].last_offset + 1)
        return taken

    def _is_acquired(self, offset: int) -> bool:
        """Whether this offset, before which everything is known, is the next one."""
        return not self.finished and offset == self._next_offset

    def _pass_over(self, malformed: MalformedBatch) -> None:
        self._fetched.skip_batch()
        self.gaps += self._offsets_before(malformed.base_offset)
        self.rejected += self._offsets_before(malformed.next_offset)
        malformed.tp = self.leader.tp

    def _offsets_before(self, offset: int) -> Iterator[int]:
        """The acquired offsets before this one of which nothing is known yet."""
        while not self.finished and self._next_offset < offset:
            yield self._next_offset
            self._step(self._next_offset + 1)

    def _step(self, next_offset: int) -> None:
        self._next_offset = next_offset
        if next_offset > self._ranges[self._at].last_offset:
            self._at += 1
            if not self.finished:
                self._next_offset = self._ranges[self._at].first_offset
