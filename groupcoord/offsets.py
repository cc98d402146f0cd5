"""Committed offsets of the groups of one partition of __consumer_offsets: commands return records, replay applies them.

The group decides whether a commit is allowed (`raylog.groupcoord.classic`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from raylog.core.config import LONG_MAX
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_TIMESTAMP_MS, TopicPartition
from raylog.core.outcome import Outcome
from raylog.groupcoord.records import (
    STRING_BYTES_MAX,
    OffsetCommitted,
    OffsetDeleted,
    OffsetPending,
    OffsetRecord,
    TransactionEnded,
)

NO_RETENTION: Final = -1


@dataclass(frozen=True, slots=True)
class Commit:
    """The offset that a client commits for one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    retention_ms: int = NO_RETENTION
    """How long it is to be kept, of a client that may say that; else -1."""


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
        self._pending_in: dict[str, dict[TopicPartition, set[int]]] = {}
        """The producers with a pending offset, by group and partition."""
        self._in_topic: dict[str, Counter[str]] = {}
        """How many offsets, committed and pending ones, each group has in each topic."""
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
            keeps = commit.retention_ms != NO_RETENTION
            expire_timestamp_ms = max(0, min(now_ms + commit.retention_ms, LONG_MAX)) if keeps else NO_TIMESTAMP_MS
            records.append(
                OffsetCommitted(
                    group,
                    tp.topic,
                    tp.partition,
                    commit.offset,
                    commit.leader_epoch,
                    commit.metadata,
                    now_ms,
                    expire_timestamp_ms,
                )
            )
        return Outcome(answers, records)

    def topic_deleted(self, topic: str) -> Outcome[None, OffsetRecord]:
        """Offsets of a deleted topic do not apply to a new topic of the same name."""
        known = sorted(
            (group, tp)
            for group in self._in_topic.get(topic, ())
            for tp in self._committed.get(group, {}).keys() | self.unstable(group)
            if tp.topic == topic
        )
        return Outcome(None, [OffsetDeleted(group, *tp) for group, tp in known])

    def replay(self, record: OffsetRecord) -> None:
        match record:
            case OffsetCommitted():
                self._put(record, superseding=self._order)
            case OffsetPending(producer_id=producer_id, committed=committed):
                tp = TopicPartition(committed.topic, committed.partition)
                pending = self._pending.setdefault(producer_id, {})
                if (committed.group, tp) not in pending:
                    self._pending_in.setdefault(committed.group, {}).setdefault(tp, set()).add(producer_id)
                    self._count(committed.group, tp.topic, 1)
                pending[committed.group, tp] = _Pending(self._order, committed)
                self._order += 1
            case TransactionEnded(producer_id=producer_id, committed=is_committed):
                for (group, tp), ended in list(self._pending.get(producer_id, {}).items()):
                    self._drop_pending(producer_id, group, tp)
                    if is_committed:
                        self._put(ended.committed, superseding=ended.order)
            case OffsetDeleted(group=group):
                tp = TopicPartition(record.topic, record.partition)
                self._supersede(group, tp, self._order)
                offsets = self._committed.get(group, {})
                if offsets.pop(tp, None) is not None:
                    self._count(group, tp.topic, -1)
                if not offsets:
                    self._committed.pop(group, None)

    def topics(self) -> Iterable[str]:
        """The topics in which a group has an offset, committed or pending."""
        return self._in_topic.keys()

    def groups(self) -> set[str]:
        """The groups that have committed offsets, or pending ones."""
        return self._committed.keys() | self._pending_in.keys()

    def has(self, group: str) -> bool:
        """Whether the group has committed offsets, or pending ones."""
        return group in self._committed or group in self._pending_in

    @property
    def group_count(self) -> int:
        """The number of groups that have committed offsets."""
        return len(self._committed)

    def delete(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> list[OffsetRecord]:
        """The records that remove the group's offsets: those of these partitions, or all of them."""
        known = self._committed.get(group, {}).keys() | self.unstable(group)
        wanted = sorted(known) if partitions is None else [tp for tp in partitions if tp in known]
        return [OffsetDeleted(group, *tp) for tp in wanted]

    def committed(self, group: str) -> Mapping[TopicPartition, OffsetCommitted]:
        return self._committed.get(group, {})

    def unstable(self, group: str) -> set[TopicPartition]:
        """The partitions in which an open transaction has a pending offset of the group."""
        return set(self._pending_in.get(group, ()))

    def fetch(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetCommitted | None]:
        offsets = self._committed.get(group, {})
        return {tp: offsets.get(tp) for tp in partitions}

    def fetch_all(self, group: str) -> dict[TopicPartition, OffsetCommitted | None]:
        return dict(self._committed.get(group, {}))

    def _put(self, record: OffsetCommitted, *, superseding: int) -> None:
        tp = TopicPartition(record.topic, record.partition)
        offsets = self._committed.setdefault(record.group, {})
        if tp not in offsets:
            self._count(record.group, tp.topic, 1)
        offsets[tp] = record
        self._supersede(record.group, tp, superseding)

    def _supersede(self, group: str, tp: TopicPartition, upto: int) -> None:
        """Drop pending offsets of the partition that are older than `upto`."""
        for producer_id in list(self._pending_in.get(group, {}).get(tp, ())):
            if self._pending[producer_id][group, tp].order < upto:
                self._drop_pending(producer_id, group, tp)

    def _drop_pending(self, producer_id: int, group: str, tp: TopicPartition) -> None:
        pending = self._pending[producer_id]
        del pending[group, tp]
        if not pending:
            del self._pending[producer_id]
        partitions = self._pending_in[group]
        partitions[tp].remove(producer_id)
        if not partitions[tp]:
            del partitions[tp]
            if not partitions:
                del self._pending_in[group]
        self._count(group, tp.topic, -1)

    def _count(self, group: str, topic: str, change: int) -> None:
        groups = self._in_topic.setdefault(topic, Counter())
        groups[group] += change
        if not groups[group]:
            del groups[group]
            if not groups:
                del self._in_topic[topic]
