"""The state of the share-partitions in one partition of __share_group_state: commands return records, replay applies.

Two epochs fence a writer. The state epoch rises when the group coordinator sets the start offset anew, the leader epoch
with each leader of the partition. After a number of updates a snapshot follows, so that older records can be deleted.
Source: KIP-932; for what it leaves open, the behaviour of Apache Kafka 4.2.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain
from typing import Final
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.sharecoord.records import (
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareRecord,
    SnapshotWritten,
    StateBatch,
    StateDeleted,
    UpdateWritten,
)

UNINITIALIZED_START_OFFSET: Final = -1
"""The leader begins where share.auto.offset.reset says."""
NO_EPOCH: Final = -1
STATES: Final = frozenset({0, 2, 4})
"""The delivery states that are stored: available, acknowledged, archived."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of one share-partition."""

    snapshot: SnapshotWritten
    """With all updates applied."""
    updates: int = 0
    """Since the last snapshot."""


@dataclass(frozen=True, slots=True)
class Write:
    """What the leader of a partition reports."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class ShareStates:
    """Lifecycle: `replay` for each record of the log, then commands, whose records are appended and replayed."""

    def __init__(self, *, updates_max: Callable[[], int], exists: Callable[[UUID, int], bool]) -> None:
        """`updates_max`: the number of updates between two snapshots; `exists`: whether there is such a partition."""
        self.states: dict[SharePartitionKey, State] = {}
        self._updates_max = updates_max
        self._exists = exists

    # --- commands

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, now_ms: int
    ) -> Outcome[None, ShareRecord]:
        """Begin at this offset. Raises KafkaError: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, FENCED_STATE_EPOCH."""
        self._check(key)
        _check_start(start_offset)
        state = self.states.get(key)
        if state is not None and state_epoch < state.snapshot.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        snapshot = SnapshotWritten(
            key,
            0 if state is None else state.snapshot.snapshot_epoch + 1,
            state_epoch,
            0 if state is None else state.snapshot.leader_epoch,
            start_offset,
            UNKNOWN_COUNT if start_offset == UNINITIALIZED_START_OFFSET else 0,
            now_ms,
            now_ms,
            (),
        )
        return Outcome(None, [snapshot])

    def read(self, key: SharePartitionKey, *, leader_epoch: int) -> Outcome[SnapshotWritten, ShareRecord]:
        """The state, for a new leader; leaders of earlier epochs cannot write from then on.

        Raises KafkaError: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH.
        """
        self._check(key)
        state = self._initialized(key)
        if leader_epoch < state.snapshot.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if leader_epoch == state.snapshot.leader_epoch:
            return Outcome(state.snapshot, [])
        update = UpdateWritten(key, state.snapshot.snapshot_epoch, leader_epoch, -1, UNKNOWN_COUNT, ())
        return Outcome(replace(state.snapshot, leader_epoch=leader_epoch), [update])

    def write(self, write: Write, *, now_ms: int) -> Outcome[None, ShareRecord]:
        """Raises KafkaError: as `read`, FENCED_STATE_EPOCH, and INVALID_REQUEST for what cannot be a state."""
        self._check(write.key)
        state = self._initialized(write.key)
        snapshot = state.snapshot
        if write.leader_epoch < snapshot.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if write.state_epoch < snapshot.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        _check_start(write.start_offset)
        if write.delivery_complete_count < UNKNOWN_COUNT:
            message = f"The delivery complete count {write.delivery_complete_count} is negative."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        for first, last, delivery_state, count in write.batches:
            if not 0 <= first <= last or delivery_state not in STATES or count < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Offsets {first} to {last} cannot be in that state.")
        update = UpdateWritten(
            write.key,
            snapshot.snapshot_epoch,
            write.leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            write.batches,
        )
        if state.updates < self._updates_max() and write.state_epoch == snapshot.state_epoch:
            return Outcome(None, [update])
        applied = _applied(snapshot, update)
        return Outcome(
            None,
            [
                replace(
                    applied,
                    snapshot_epoch=snapshot.snapshot_epoch + 1,
                    state_epoch=write.state_epoch,
                    write_timestamp_ms=now_ms,
                )
            ],
        )

    def summary(self, key: SharePartitionKey) -> SnapshotWritten | None:
        """The state as of now; None if there is none. Raises KafkaError as `read`."""
        self._check(key)
        state = self.states.get(key)
        return None if state is None else state.snapshot

    def delete(self, key: SharePartitionKey) -> Outcome[None, ShareRecord]:
        """Forget the share-partition, which need not be known. Raises KafkaError(INVALID_REQUEST)."""
        if key.partition < 0 or not key.group:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return Outcome(None, [StateDeleted(key)] if key in self.states else [])

    def of_topic(self, topic_id: UUID) -> list[ShareRecord]:
        """The records that delete the state of a deleted topic."""
        return [StateDeleted(key) for key in self.states if key.topic_id == topic_id]

    def snapshot(self, key: SharePartitionKey, *, now_ms: int) -> SnapshotWritten:
        """The state as one record, so that older ones can be deleted."""
        snapshot = self.states[key].snapshot
        return replace(snapshot, snapshot_epoch=snapshot.snapshot_epoch + 1, write_timestamp_ms=now_ms)

    # --- records

    def replay(self, record: ShareRecord) -> None:
        match record:
            case SnapshotWritten():
                self.states[record.key] = State(record)
            case UpdateWritten():
                state = self.states.get(record.key)
                if state is not None:  # its snapshot is later in the log, and this record about to be deleted
                    self.states[record.key] = State(_applied(state.snapshot, record), state.updates + 1)
            case StateDeleted():
                self.states.pop(record.key, None)

    def _check(self, key: SharePartitionKey) -> None:
        if not key.group or key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id is empty or the partition negative.")
        if not self._exists(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _initialized(self, key: SharePartitionKey) -> State:
        state = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The group {key.group!r} has no state of the partition.")
        return state


def _check_start(start_offset: int) -> None:
    if start_offset < UNINITIALIZED_START_OFFSET:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The start offset {start_offset} is negative.")


def combined(
    known: Sequence[StateBatch], written: Sequence[StateBatch], *, start_offset: int
) -> tuple[StateBatch, ...]:
    """The batches in order, without overlaps; what was written later counts, and nothing before the start offset.

    `known` are in order and do not overlap.
    """
    first, last = 0, len(known)
    if written:
        lowest = min(batch.first_offset for batch in written)
        highest = max(batch.last_offset for batch in written)
        first = bisect_left(known, lowest, key=lambda batch: batch.last_offset)
        last = bisect_right(known, highest, key=lambda batch: batch.first_offset)
    joined: list[StateBatch] = []
    for batch in chain(known[:first], _without_overlaps([*known[first:last], *written]), known[last:]):
        if batch.last_offset < start_offset:
            continue
        before = joined[-1] if joined else None
        if before is not None and (before.last_offset + 1, *before[2:]) == (batch.first_offset, *batch[2:]):
            joined[-1] = before._replace(last_offset=batch.last_offset)
        elif batch.first_offset < start_offset:
            joined.append(batch._replace(first_offset=start_offset))
        else:
            joined.append(batch)
    return tuple(joined)


def _without_overlaps(batches: Sequence[StateBatch]) -> Iterator[StateBatch]:
    """Pieces of the batches in the order of offsets; where some overlap, of the last one of them in the sequence."""
    begins = sorted((batch.first_offset, -number) for number, batch in enumerate(batches))
    begins.reverse()
    begun: list[int] = []  # a heap of their negative numbers
    offset = 0
    while begins or begun:
        if not begun:
            offset = begins[-1][0]
        while begins and begins[-1][0] <= offset:
            heappush(begun, begins.pop()[1])
        batch = batches[-begun[0]]
        end = batch.last_offset if not begins else min(batch.last_offset, begins[-1][0] - 1)
        if end >= offset:
            yield batch._replace(first_offset=offset, last_offset=end)
            offset = end + 1
        if batch.last_offset < offset:
            heappop(begun)


def _applied(snapshot: SnapshotWritten, update: UpdateWritten) -> SnapshotWritten:
    start_offset = snapshot.start_offset if update.start_offset == -1 else update.start_offset
    count = update.delivery_complete_count
    return replace(
        snapshot,
        leader_epoch=max(snapshot.leader_epoch, update.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=snapshot.delivery_complete_count if count == UNKNOWN_COUNT else count,
        batches=combined(snapshot.batches, update.batches, start_offset=start_offset),
    )
