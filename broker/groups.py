"""The groups this broker coordinates: a shard for each partition of __consumer_offsets that it leads.

A shard is loaded when it is first asked for, and again under each new leader epoch: what it held in memory then went
with the leadership, and whoever waited for an answer is told to look for the coordinator again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.outcome import Outcome
from raylog.groupcoord import records
from raylog.groupcoord.classic.groups import ClassicGroups, GroupLimits
from raylog.groupcoord.expiration import expired
from raylog.groupcoord.offsets import Commit, GroupOffsets, partition_of_group
from raylog.groupcoord.records import GroupCommitted, GroupDeleted, GroupRecord, OffsetCommitted
from raylog.logstore.event_log import EventLog
from raylog.replication.partition import Partition, Uncommitted

OFFSETS_TOPIC = "__consumer_offsets"
FORGET_BATCH_MAX = 1000
"""So many records that forget something are appended at once: a batch has a largest size."""

_SEEN_BY_CLIENTS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client of the coordinator is told of what the log says, as in Kafka."""


class GroupShard:
    """One partition's groups and what they have committed, over its log, for one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        *,
        limits: Callable[[], GroupLimits],
        new_id: Callable[[], str],
        on_append: Callable[[TopicPartition], None],
        now: Now,
    ) -> None:
        """Reads the log. Raises KafkaError."""
        self.leader_epoch = partition.leader_epoch
        self._partition = partition
        self.offsets = GroupOffsets()
        self.classic = ClassicGroups(limits, append=self.append, new_id=new_id)
        self._on_append = on_append
        self._log: EventLog[GroupRecord] = EventLog(
            partition.log,
            partition.leader_epoch,
            encode=records.encode,
            decode=lambda key, value: records.decode(key or b"", value),
            replay=self._replay,
        )
        try:
            self._log.load()
        except KafkaError as error:
            raise _seen_by_clients(error) from error
        self.classic.loaded(now)

    def group_ids(self) -> set[str]:
        return self.offsets.groups() | self.classic.groups.keys()

    def append(self, group_records: Sequence[GroupRecord], now: Now) -> None:
        """Make them true. Raises KafkaError with what a client is told, and has changed nothing then."""
        if not group_records:
            return
        try:
            self._partition.check_insync_replicas()
            self._log.commit(Outcome(None, group_records), now_ms=now.wall_ms)
        except KafkaError as error:
            raise _seen_by_clients(error) from error
        self._on_append(self._log.log.topic_partition)

    def forget(self, group_records: Sequence[GroupRecord], now: Now) -> None:
        """The same for records that forget something, however many. Raises KafkaError, with a part of it done."""
        for start in range(0, len(group_records), FORGET_BATCH_MAX):
            self.append(group_records[start : start + FORGET_BATCH_MAX], now)

    def delete(self, group_id: str, now: Now) -> None:
        """Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or that the log cannot be written."""
        if group_id not in self.group_ids():
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        self.classic.check_delete(group_id)
        self.forget([*self.offsets.delete(group_id), GroupDeleted(group_id)], now)

    def expire(self, *, retention_ms: int, now: Now) -> None:
        """Forget what has been of no use for so long, and groups with nothing left. Raises KafkaError."""
        for group_id in sorted(self.group_ids()):
            group = self.classic.groups.get(group_id)
            committed = self.offsets.committed(group_id)
            gone = expired(group, committed, retention_ms=retention_ms, now_ms=now.wall_ms)
            forgotten: list[GroupRecord] = [*self.offsets.delete(group_id, gone)]
            if group is not None and group.is_unused and len(gone) == len(committed):
                forgotten.append(GroupDeleted(group_id))
            self.forget(forgotten, now)

    def _replay(self, record: GroupRecord) -> None:
        if isinstance(record, GroupCommitted | GroupDeleted):
            self.classic.replay(record)
        else:
            self.offsets.replay(record)


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
        self._deadline_ms: int | None = None
        self._deadline_known = True
        """False as soon as a shard may have another one: it is asked for after every event of the broker."""

    def shard(self, group: str, now: Now) -> GroupShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or that the log cannot be read."""
        count = self._count()
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._load(partition_of_group(group, count), now)

    def classic(self, group: str, now: Now) -> ClassicGroups:
        """Where the group's members are coordinated. Raises KafkaError, INVALID_GROUP_ID among them."""
        if not group:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.shard(group, now).classic

    def led_shards(self, now: Now) -> Iterator[GroupShard]:
        """Every shard of this broker whose log can be read."""
        for number in range(self._count()):
            if self._led(number) is not None:
                try:
                    yield self._load(number, now)
                except KafkaError:
                    continue

    def commit(
        self,
        group: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        metadata_bytes_max: int,
        unknown_group: ErrorCode,
        now: Now,
    ) -> dict[TopicPartition, ErrorCode]:
        """A code for each partition. Raises KafkaError where the group has no say, or the log cannot be written;
        `unknown_group` for a generation of a group that is not there."""
        shard = self.shard(group, now)
        if generation_id >= 0 and group not in shard.group_ids():
            raise KafkaError(unknown_group)
        shard.classic.check_commit(group, generation_id, member_id, group_instance_id, now)
        outcome = shard.offsets.commit(group, commits, metadata_bytes_max=metadata_bytes_max, now_ms=now.wall_ms)
        shard.append(outcome.records, now)
        return outcome.response

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition] | None, now: Now
    ) -> dict[TopicPartition, OffsetCommitted | None]:
        """What the group has committed: for `partitions`, or for all it has. Raises KafkaError."""
        offsets = self.shard(group, now).offsets
        return offsets.fetch_all(group) if partitions is None else offsets.fetch(group, partitions)

    def topic_deleted(self, topic: str, now: Now) -> None:
        """Forget every position in a topic that is gone, where this broker keeps it and its log can be written.

        A position that stays harms nobody until a topic of that name comes back.
        """
        for shard in self.led_shards(now):
            with _log_may_fail():
                shard.forget(shard.offsets.topic_deleted(topic).records, now)

    def uncommitted(self) -> list[Uncommitted]:
        """The ends of those logs of which not everything is committed yet: any answer may tell of it."""
        if not self._shards:
            return []
        partitions = (self._led(number) for number in self._shards)
        ends = (partition.uncommitted() for partition in partitions if partition is not None)
        return [end for end in ends if end is not None]

    # --- time and leadership

    def tick(self, now: Now) -> None:
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now.monotonic_ms:
            return
        self._deadline_known = False
        for shard in self._shards.values():
            shard.classic.tick(now)

    def next_deadline_ms(self) -> int | None:
        if not self._deadline_known:
            deadlines = (shard.classic.next_deadline_ms() for shard in self._shards.values())
            self._deadline_ms = min((ms for ms in deadlines if ms is not None), default=None)
            self._deadline_known = True
        return self._deadline_ms

    def expire(self, *, retention_ms: int, now: Now) -> None:
        """Forget what has been of no use for so long; what cannot be written now is tried again the next time."""
        for shard in self.led_shards(now):
            with _log_may_fail():
                shard.expire(retention_ms=retention_ms, now=now)

    def leadership_changed(self, tp: TopicPartition) -> None:
        """To be told of each partition that has another leader, or another leader epoch, or is gone."""
        if tp.topic != OFFSETS_TOPIC:
            return
        partition, shard = self._led(tp.partition), self._shards.get(tp.partition)
        if shard is not None and (partition is None or partition.leader_epoch != shard.leader_epoch):
            del self._shards[tp.partition]
            self._deadline_known = False
            shard.classic.unload()

    def _load(self, number: int, now: Now) -> GroupShard:
        partition = self._led(number)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        self._deadline_known = False
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = GroupShard(
                partition, limits=self._limits, new_id=self._new_id, on_append=self._on_append, now=now
            )
        return shard


@contextmanager
def _log_may_fail() -> Iterator[None]:
    """For chores: the other shards go on."""
    try:
        yield
    except KafkaError:
        pass


def _seen_by_clients(error: KafkaError) -> KafkaError:
    return KafkaError(_SEEN_BY_CLIENTS.get(error.code, error.code), error.message)
