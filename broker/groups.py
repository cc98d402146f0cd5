"""The groups this broker coordinates: a shard for each partition of __consumer_offsets that it leads.

A shard is loaded when it is first asked for, and again under each new leader epoch: what it held in memory then went
with the leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome
from raylog.groupcoord import records
from raylog.groupcoord.classic.groups import ClassicGroups, GroupLimits
from raylog.groupcoord.offsets import Commit, GroupOffsets, partition_of_group
from raylog.groupcoord.records import GroupCommitted, GroupDeleted, GroupRecord, OffsetCommitted
from raylog.logstore.event_log import EventLog
from raylog.replication.partition import Partition

Answer = TypeVar("Answer")
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class GroupShard:
    """One partition's groups and what they have committed, over one log."""

    leader_epoch: LeaderEpoch
    offsets: GroupOffsets
    classic: ClassicGroups
    log: EventLog[GroupRecord]

    def group_ids(self) -> set[str]:
        return self.offsets.groups() | self.classic.groups.keys()


class GroupShards:
    """`led` gives the partition of __consumer_offsets of this number, if this broker leads it; `count` how many there
    are in the cluster, 0 before the topic is made."""

    def __init__(
        self,
        led: Callable[[int], Partition | None],
        count: Callable[[], int],
        *,
        limits: Callable[[], GroupLimits],
        new_id: Callable[[], str],
        on_append: Callable[[TopicPartition], None],
    ) -> None:
        self._led = led
        self._count = count
        self._limits = limits
        self._new_id = new_id
        self._on_append = on_append
        self._shards: dict[int, GroupShard] = {}

    def shard(self, group: str, now: Now) -> GroupShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or that the log cannot be read."""
        count = self._count()
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._load(partition_of_group(group, count), now)

    def led_shards(self, now: Now) -> Iterator[GroupShard]:
        """Every shard of this broker. Raises KafkaError where one cannot be read."""
        for number in range(self._count()):
            if self._led(number) is not None:
                yield self._load(number, now)

    def commit(
        self,
        group: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        metadata_bytes_max: int,
        now: Now,
    ) -> dict[TopicPartition, ErrorCode]:
        """A code for each partition. Raises KafkaError where the group has no say, or the log cannot be written."""
        shard = self.shard(group, now)
        shard.classic.check_commit(group, generation_id, member_id, group_instance_id, now)
        outcome = shard.offsets.commit(group, commits, metadata_bytes_max=metadata_bytes_max, now_ms=now.wall_ms)
        return self.write(shard, outcome, now)

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None, now: Now
    ) -> dict[TopicPartition, OffsetCommitted | None]:
        """What the group has committed: for `partitions`, or for all it has. Raises KafkaError."""
        offsets = self.shard(group, now).offsets
        return offsets.fetch_all(group) if partitions is None else offsets.fetch(group, partitions)

    def topic_deleted(self, topic: str, now: Now) -> None:
        """Forget every position in a topic that is gone, where this broker keeps it. Raises KafkaError."""
        for shard in self.led_shards(now):
            self.write(shard, shard.offsets.topic_deleted(topic), now)

    def write(self, shard: GroupShard, outcome: Outcome[Answer, GroupRecord], now: Now) -> Answer:
        """Make the outcome's records true, and give its response. Raises KafkaError where the log cannot be written."""
        answer = shard.log.commit(outcome, now_ms=now.wall_ms)
        self._on_append(shard.log.log.topic_partition)
        return answer

    # --- time

    def tick(self, now: Now) -> None:
        for number, shard in list(self._shards.items()):
            partition = self._led(number)
            if partition is None or partition.leader_epoch != shard.leader_epoch:
                del self._shards[number]
            else:
                shard.classic.tick(now)

    def next_deadline_ms(self) -> int | None:
        deadlines = (shard.classic.next_deadline_ms() for shard in self._shards.values())
        return min((ms for ms in deadlines if ms is not None), default=None)

    def _load(self, number: int, now: Now) -> GroupShard:
        partition = self._led(number)
        if partition is None:
            self._shards.pop(number, None)
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard = self._shards.get(number)
        if shard is not None and shard.leader_epoch == partition.leader_epoch:
            return shard
        offsets, classic = GroupOffsets(), ClassicGroups(self._limits, new_id=self._new_id)

        def replay(record: GroupRecord) -> None:
            if isinstance(record, GroupCommitted | GroupDeleted):
                classic.replay(record, now_ms=now.monotonic_ms)
            else:
                offsets.replay(record)

        log: EventLog[GroupRecord] = EventLog(
            partition.log,
            partition.leader_epoch,
            encode=records.encode,
            decode=lambda key, value: records.decode(key or b"", value),
            replay=replay,
        )
        log.load()
        classic.log = log
        shard = self._shards[number] = GroupShard(partition.leader_epoch, offsets, classic, log)
        return shard
