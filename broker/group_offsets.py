"""Committed offsets on this broker: a machine for each partition of __consumer_offsets, loaded when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from raylog.broker.event_log import EventLog
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord import records
from raylog.groupcoord.offsets import Commit, GroupOffsets, partition_of_group
from raylog.groupcoord.records import OffsetCommitted, OffsetRecord
from raylog.replication.partition import Partition

OFFSETS_TOPIC = "__consumer_offsets"


class GroupOffsetShards:
    """`partitions` gives the partitions of __consumer_offsets there are at the moment, by number."""

    def __init__(
        self, partitions: Callable[[], Mapping[int, Partition]], *, on_append: Callable[[TopicPartition], None]
    ) -> None:
        self._partitions = partitions
        self._on_append = on_append
        self._shards: dict[int, tuple[GroupOffsets, EventLog[OffsetRecord]]] = {}

    def commit(
        self,
        group: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        generation_id: int,
        member_id: str,
        metadata_bytes_max: int,
        now_ms: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """A code for each partition. Raises KafkaError where the shard cannot be read or written."""
        machine, log = self._shard(group)
        outcome = machine.commit(
            group,
            commits,
            generation_id=generation_id,
            member_id=member_id,
            metadata_bytes_max=metadata_bytes_max,
            now_ms=now_ms,
        )
        answers = log.commit(outcome, now_ms=now_ms)
        self._on_append(log.partition.topic_partition)
        return answers

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetCommitted | None]:
        """What the group has committed: for `partitions`, or for all it has. Raises KafkaError."""
        machine, _ = self._shard(group)
        return machine.fetch_all(group) if partitions is None else machine.fetch(group, partitions)

    def topic_deleted(self, topic: str, *, now_ms: int) -> None:
        """Forget every position in a topic that is gone. Raises KafkaError."""
        for number in sorted(self._partitions()):
            machine, log = self._load(number)
            log.commit(machine.topic_deleted(topic), now_ms=now_ms)
            self._on_append(log.partition.topic_partition)

    def _shard(self, group: str) -> tuple[GroupOffsets, EventLog[OffsetRecord]]:
        partitions = self._partitions()
        if not partitions:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._load(partition_of_group(group, len(partitions)))

    def _load(self, number: int) -> tuple[GroupOffsets, EventLog[OffsetRecord]]:
        shard = self._shards.get(number)
        if shard is None:
            partition = self._partitions().get(number)
            if partition is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            machine = GroupOffsets()
            log: EventLog[OffsetRecord] = EventLog(
                partition,
                encode=records.encode,
                decode=lambda key, value: records.decode(key or b"", value),
                replay=machine.replay,
            )
            log.load()
            shard = self._shards[number] = (machine, log)
        return shard
