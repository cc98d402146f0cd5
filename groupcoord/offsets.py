"""Committed offsets of the groups of one partition of __consumer_offsets: commands return records, replay applies them.

The group decides whether a commit is allowed (`raylog.groupcoord.classic`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.core.outcome import Outcome
from raylog.groupcoord.records import (
    STRING_BYTES_MAX,
    OffsetCommitted,
    OffsetDeleted,
    OffsetPending,
    OffsetRecord,
    TransactionEnded,
)


@dataclass(frozen=True, slots=True)
class Commit:
    """The offset that a client commits for one partition."""

    offset: int
    leader_epoch: int
    metadata: str


class _Pending(NamedTuple):
    """An offset of one group and partition that an open transaction is to commit."""

    order: int
    """Sequence number of the pending offset: the higher one is the newer offset, whichever is committed first."""
    committed: OffsetCommitted


class GroupOffsets:
    """State: for each group, the last committed offset of each partition, and the pending offsets of open transactions.

    An offset may be pending in several transactions at once. Once an offset that was written later is committed, the
    earlier pending ones have no effect any more.
    """

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetCommitted]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], _Pending]] = {}
        """Pending offsets of open transactions, by producer id."""
        self._order = 0

    def commit(
        self,
        group: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        metadata_bytes_max: int,
        now_ms: int,
    ) -> Outcome[dict[TopicPartition, ErrorCode], OffsetCommitted]:
        """Commit offsets. Returns a code for each partition; those with NONE are committed by the records.

        As in Kafka the group id may be empty: old clients commit this way.
        """
        if len(group.encode()) > STRING_BYTES_MAX:
            return Outcome(dict.fromkeys(commits, ErrorCode.INVALID_GROUP_ID))
        answers: dict[TopicPartition, ErrorCode] = {}
        records: list[OffsetCommitted] = []
        for tp, commit in commits.items():
            if len(commit.metadata.encode()) > min(metadata_bytes_max, STRING_BYTES_MAX):
                answers[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            answers[tp] = ErrorCode.NONE
            records.append(
                OffsetCommitted(
                    group, tp.topic, tp.partition, commit.offset, commit.leader_epoch, commit.metadata, now_ms
                )
            )
        return Outcome(answers, records)

    def topic_deleted(self, topic: str) -> Outcome[None, OffsetRecord]:
        """Offsets of a deleted topic do not apply to a new topic of the same name."""
        known = {(group, tp) for group, offsets in self._committed.items() for tp in offsets}
        known.update(key for pending in self._pending.values() for key in pending)
        return Outcome(None, [OffsetDeleted(group, *tp) for group, tp in sorted(known) if tp.topic == topic])

    def replay(self, record: OffsetRecord) -> None:
        match record:
            case OffsetCommitted():
                self._put(record, superseding=self._order)
            case OffsetPending(producer_id=producer_id, committed=committed):
                key = committed.group, TopicPartition(committed.topic, committed.partition)
                self._pending.setdefault(producer_id, {})[key] = _Pending(self._order, committed)
                self._order += 1
            case TransactionEnded(producer_id=producer_id, committed=is_committed):
                for pending in self._pending.pop(producer_id, {}).values():
                    if is_committed:
                        self._put(pending.committed, superseding=pending.order)
            case OffsetDeleted(group=group):
                tp = TopicPartition(record.topic, record.partition)
                self._supersede(group, tp, self._order)
                offsets = self._committed.get(group, {})
                offsets.pop(tp, None)
                if not offsets:
                    self._committed.pop(group, None)

    def groups(self) -> set[str]:
        """The groups that have committed offsets, or pending ones."""
        return self._committed.keys() | {group for pending in self._pending.values() for group, _ in pending}

    def delete(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> list[OffsetRecord]:
        """The records that remove the group's offsets: those of these partitions, or all of them."""
        known = self._committed.get(group, {}).keys() | self.unstable(group)
        wanted = sorted(known) if partitions is None else [tp for tp in partitions if tp in known]
        return [OffsetDeleted(group, *tp) for tp in wanted]

    def committed(self, group: str) -> Mapping[TopicPartition, OffsetCommitted]:
        return self._committed.get(group, {})

    def unstable(self, group: str) -> set[TopicPartition]:
        """The partitions in which an open transaction has a pending offset of the group."""
        return {tp for pending in self._pending.values() for of, tp in pending if of == group}

    def fetch(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetCommitted | None]:
        offsets = self._committed.get(group, {})
        return {tp: offsets.get(tp) for tp in partitions}

    def fetch_all(self, group: str) -> dict[TopicPartition, OffsetCommitted | None]:
        return dict(self._committed.get(group, {}))

    def _put(self, record: OffsetCommitted, *, superseding: int) -> None:
        tp = TopicPartition(record.topic, record.partition)
        self._committed.setdefault(record.group, {})[tp] = record
        self._supersede(record.group, tp, superseding)

    def _supersede(self, group: str, tp: TopicPartition, upto: int) -> None:
        """Drop pending offsets of the partition that are older than `upto`."""
        for producer_id, pending in list(self._pending.items()):
            found = pending.get((group, tp))
            if found is not None and found.order < upto:
                del pending[group, tp]
                if not pending:
                    del self._pending[producer_id]
