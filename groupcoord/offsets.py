"""Committed offsets of the groups of one partition of __consumer_offsets: commands give records, replay is the mutator.

Whether a commit may be made is for the group it is made for to say (`raylog.groupcoord.classic`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.core.outcome import Outcome
from raylog.groupcoord.records import STRING_BYTES_MAX, OffsetCommitted, OffsetDeleted, OffsetRecord


@dataclass(frozen=True, slots=True)
class Commit:
    """What a client asks to be remembered for one partition."""

    offset: int
    leader_epoch: int
    metadata: str


class GroupOffsets:
    """State: for each group, the last committed offset of each partition."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetCommitted]] = {}

    def commit(
        self,
        group: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        metadata_bytes_max: int,
        now_ms: int,
    ) -> Outcome[dict[TopicPartition, ErrorCode], OffsetRecord]:
        """A code for each partition; those with NONE are remembered once the records are.

        As in Kafka a group's id may be empty here: old clients commit so.
        """
        if len(group.encode()) > STRING_BYTES_MAX:
            return Outcome(dict.fromkeys(commits, ErrorCode.INVALID_GROUP_ID))
        answers: dict[TopicPartition, ErrorCode] = {}
        records: list[OffsetRecord] = []
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
        """Positions in a topic that is gone mean nothing in a new one of the same name."""
        return Outcome(
            None,
            [
                OffsetDeleted(group, tp.topic, tp.partition)
                for group, offsets in self._committed.items()
                for tp in offsets
                if tp.topic == topic
            ],
        )

    def replay(self, record: OffsetRecord) -> None:
        tp = TopicPartition(record.topic, record.partition)
        if isinstance(record, OffsetCommitted):
            self._committed.setdefault(record.group, {})[tp] = record
            return
        offsets = self._committed.get(record.group, {})
        offsets.pop(tp, None)
        if not offsets:
            self._committed.pop(record.group, None)

    def groups(self) -> set[str]:
        """Those that have committed anything."""
        return set(self._committed)

    def delete(self, group: str, partitions: Iterable[TopicPartition] | None = None) -> list[OffsetRecord]:
        """The records that forget the group's positions: in these partitions, or everywhere."""
        committed = self._committed.get(group, {})
        wanted = committed if partitions is None else [tp for tp in partitions if tp in committed]
        return [OffsetDeleted(group, tp.topic, tp.partition) for tp in wanted]

    def committed(self, group: str) -> Mapping[TopicPartition, OffsetCommitted]:
        return self._committed.get(group, {})

    def fetch(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetCommitted | None]:
        offsets = self._committed.get(group, {})
        return {tp: offsets.get(tp) for tp in partitions}

    def fetch_all(self, group: str) -> dict[TopicPartition, OffsetCommitted | None]:
        return dict(self._committed.get(group, {}))


def partition_of_group(group: str, partition_count: int) -> int:
    """The partition of __consumer_offsets that holds `group`: |hash| modulo the count, with Java's String.hashCode."""
    encoded = group.encode("utf-16-be", "surrogatepass")
    hash_code = 0
    for position in range(0, len(encoded), 2):
        hash_code = (31 * hash_code + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFFFFFF
    signed = hash_code - (1 << 32) if hash_code >= 1 << 31 else hash_code
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count
