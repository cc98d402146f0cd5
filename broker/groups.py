"""Committed offsets on this broker: a machine for each partition of __consumer_offsets that it leads.

A machine is loaded when it is first asked for, and again under each new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord import records
from raylog.groupcoord.offsets import Commit, GroupOffsets, partition_of_group
from raylog.groupcoord.records import OffsetCommitted, OffsetRecord
from raylog.logstore.event_log import EventLog
from raylog.replication.partition import Partition

OFFSETS_TOPIC = "__consumer_offsets"


class GroupOffsetShards:
    """`led` gives the partition of __consumer_offsets of this number, if this broker leads it; `count` how many there
    are in the cluster, 0 before the topic is made."""

    def __init__(
        self,
        led: Callable[[int], Partition | None],
        count: Callable[[], int],
        *,
        on_append: Callable[[TopicPartition], None],
    ) -> None:
        self._led = led
        self._count = count
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
        self._on_append(log.log.topic_partition)
        return answers

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetCommitted | None]:
        """What the group has committed: for `partitions`, or for all it has. Raises KafkaError."""
        machine, _ = self._shard(group)
        return machine.fetch_all(group) if partitions is None else machine.fetch(group, partitions)

    def topic_deleted(self, topic: str, *, now_ms: int) -> None:
        """Forget every position in a topic that is gone, where this broker keeps it. Raises KafkaError."""
        for number in range(self._count()):
            if self._led(number) is not None:
                machine, log = self._load(number)
                log.commit(machine.topic_deleted(topic), now_ms=now_ms)
                self._on_append(log.log.topic_partition)

    def _shard(self, group: str) -> tuple[GroupOffsets, EventLog[OffsetRecord]]:
        count = self._count()
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._load(partition_of_group(group, count))

    def _load(self, number: int) -> tuple[GroupOffsets, EventLog[OffsetRecord]]:
        partition = self._led(number)
        if partition is None:
            self._shards.pop(number, None)
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard = self._shards.get(number)
        if shard is None or shard[1].leader_epoch != partition.leader_epoch:
            machine = GroupOffsets()
            log: EventLog[OffsetRecord] = EventLog(
                partition.log,
                partition.leader_epoch,
                encode=records.encode,
                decode=lambda key, value: records.decode(key or b"", value),
                replay=machine.replay,
            )
            log.load()
            shard = self._shards[number] = (machine, log)
        return shard
