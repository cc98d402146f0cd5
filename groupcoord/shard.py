"""The groups of one partition of __consumer_offsets, of all kinds, and their committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from raylog.config.consumer_groups import ConsumerGroupSettings
from raylog.config.groups import GroupLimits
from raylog.config.share_groups import ShareGroupSettings
from raylog.config.streams_groups import StreamsGroupSettings
from raylog.coordination.shards import ShardLog
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerIdentity, TopicPartition
from raylog.groupcoord import records
from raylog.groupcoord.classic.group import ClassicGroup, Joined, JoinReply, SyncReply
from raylog.groupcoord.classic.groups import ClassicGroups, JoinRequest, SyncRequest
from raylog.groupcoord.classic.subscription import CONSUMER
from raylog.groupcoord.consumer.classic_members import ClassicMembers
from raylog.groupcoord.consumer.conversion import downgraded, upgraded
from raylog.groupcoord.consumer.group import ConsumerGroup
from raylog.groupcoord.consumer.groups import ConsumerGroups, MayDescribe
from raylog.groupcoord.consumer.heartbeat import JOINING, Answer, Heartbeat
from raylog.groupcoord.consumer.records import ConsumerRecord
from raylog.groupcoord.expiration import expired, expired_of_managed_group
from raylog.groupcoord.offsets import GroupOffsets
from raylog.groupcoord.records import (
    GroupCommitted,
    GroupDeleted,
    GroupRecord,
    OffsetCommitted,
    OffsetDeleted,
    OffsetPending,
    TransactionEnded,
)
from raylog.groupcoord.share.groups import Initialize, ShareAnswer, ShareGroups, ShareHeartbeat
from raylog.groupcoord.share.records import ShareGroupRecord
from raylog.groupcoord.streams.groups import StreamsGroups
from raylog.groupcoord.streams.heartbeat import JOINING as STREAMS_JOINING
from raylog.groupcoord.streams.heartbeat import StreamsAnswer, StreamsHeartbeat
from raylog.groupcoord.streams.records import StreamsRecord
from raylog.groupcoord.topics import Topics
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.markers import marker_of
from raylog.protocol.records.reader import Record
from raylog.replication.partition import Partition

FORGET_BATCH_MAX = 1000
"""Tombstones per append: the size of a batch is limited."""


@dataclass(slots=True)
class GroupCounts:
    """What this node has done as a coordinator of groups since it started."""

    classic_rebalances: int = 0
    """Generations of classic groups that have begun."""
    consumer_rebalances: int = 0
    """Target assignments of consumer groups that were computed."""
    streams_rebalances: int = 0
    """Target assignments of streams groups that were computed."""
    offset_commits: int = 0
    offset_expirations: int = 0

    def classic_rebalance(self) -> None:
        self.classic_rebalances += 1

    def consumer_rebalance(self) -> None:
        self.consumer_rebalances += 1

    def streams_rebalance(self) -> None:
        self.streams_rebalances += 1


class GroupShard:
    """The groups of one partition and their committed offsets, over its log, for one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        *,
        limits: Callable[[], GroupLimits],
        consumer_settings: Callable[[str], ConsumerGroupSettings],
        share_settings: Callable[[str], ShareGroupSettings],
        streams_settings: Callable[[str], StreamsGroupSettings],
        initialize: Initialize,
        topics: Topics,
        new_id: Callable[[], str],
        on_append: Callable[[TopicPartition, int], None],
        counts: GroupCounts,
    ) -> None:
        self.leader_epoch = partition.leader_epoch
        self.offsets = GroupOffsets()
        self.classic = ClassicGroups(limits, append=self.append, new_id=new_id, on_rebalance=counts.classic_rebalance)
        self.consumer = ConsumerGroups(
            consumer_settings,
            append=self._append_managed,
            new_id=new_id,
            topics=topics,
            on_rebalance=counts.consumer_rebalance,
            downgrade=self._downgrade,
        )
        self._classic_members = ClassicMembers(self.consumer, limits)
        self._consumer_settings = consumer_settings
        self._limits = limits
        self._topics = topics
        self._counts = counts
        self.share = ShareGroups(share_settings, append=self.append, topics=topics, initialize=initialize)
        self.streams = StreamsGroups(
            streams_settings, append=self._append_managed, topics=topics, on_rebalance=counts.streams_rebalance
        )
        self._log: ShardLog[GroupRecord] = ShardLog(
            partition, encode=_encode, decode=_decode, replay=self.replay, on_append=on_append
        )
        self.load_some = self._log.load_some
        self.commit_point = self._log.commit_point

    def loaded(self, now: Now) -> None:
        """The log is replayed: start the sessions, and delete the offsets of topics that were deleted meanwhile."""
        with suppress(KafkaError):  # they have no effect unless a topic of the same name is created
            for topic in sorted(self._topics.deleted(self.offsets.topics())):
                self.forget(self.offsets.topic_deleted(topic).records, now)
        self.classic.loaded(now)
        self.consumer.loaded(now)
        self.share.loaded(now)
        self.streams.loaded(now)

    def group_ids(self) -> set[str]:
        return self.offsets.groups().union(
            self.classic.groups, self.consumer.groups, self.share.groups, self.streams.groups
        )

    def group_count(self) -> int:
        """About how many groups there are: a group with members may have committed offsets, or not."""
        managed = len(self.consumer.groups) + len(self.share.groups) + len(self.streams.groups)
        return max(len(self.classic.groups) + managed, self.offsets.group_count)

    def has(self, group_id: str) -> bool:
        """Whether the group exists."""
        return (
            group_id in self.classic.groups
            or group_id in self.consumer.groups
            or group_id in self.share.groups
            or group_id in self.streams.groups
            or self.offsets.has(group_id)
        )

    def heartbeat(self, request: Heartbeat, now: Now, *, may_describe: MayDescribe) -> Answer:
        """A heartbeat of a member of a consumer group. Raises KafkaError; GROUP_ID_NOT_FOUND for a classic group.

        A classic group becomes a consumer group when a member joins it so; with members, if that is permitted.
        """
        group_id = request.group_id
        classic = self.classic.groups.get(group_id)
        if group_id in self.share.groups or group_id in self.streams.groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if classic is None:
            return self.consumer.heartbeat(request, now, may_describe=may_describe)
        if request.member_epoch != JOINING or not (classic.is_unused or self._may_upgrade(classic)):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        converted = [] if classic.is_unused else upgraded(classic, self._topics)
        answer = self.consumer.heartbeat(request, now, may_describe=may_describe, converted=converted)
        self.classic.replaced(classic)
        return answer

    def share_heartbeat(self, request: ShareHeartbeat, now: Now) -> ShareAnswer:
        """A heartbeat of a member of a share group. Raises KafkaError; GROUP_ID_NOT_FOUND for a group of another kind,
        which can become a share group only once it is deleted."""
        group_id = request.group_id
        if group_id not in self.share.groups and self.has(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return self.share.heartbeat(request, now)

    def check_share_offsets(self, group_id: str) -> None:
        """Raises KafkaError if the start offsets of this group, which may be new, cannot be set: NON_EMPTY_GROUP,
        INVALID_GROUP_ID, or GROUP_ID_NOT_FOUND for a group of another kind."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if group_id in self.share.groups:
            self.share.empty(group_id)
        elif self.has(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")

    def streams_heartbeat(self, request: StreamsHeartbeat, now: Now) -> StreamsAnswer:
        """A heartbeat of a member of a streams group. Raises KafkaError; GROUP_ID_NOT_FOUND for another kind of group.

        A classic group without members becomes a streams group when a member joins it so.
        """
        group_id = request.group_id
        classic = self.classic.groups.get(group_id)
        converts = classic is not None and classic.is_unused and request.member_epoch == STREAMS_JOINING
        if group_id in self.consumer.groups or group_id in self.share.groups or (classic is not None and not converts):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return self.streams.heartbeat(request, now)

    def join(self, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        """A member joins by the classic protocol; `reply` is called once, now or later.

        A consumer or streams group without members becomes a classic group; one with members stays what it is.
        """
        group_id = request.group_id
        group, streams_group = self.consumer.groups.get(group_id), self.streams.groups.get(group_id)
        if group_id in self.share.groups or (streams_group is not None and streams_group.members):
            reply(Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif group is None and streams_group is None:
            self.classic.join(request, reply, now)
        elif group is None or not group.members:
            try:
                self.append([*self.consumer.tombstones(group_id), *self.streams.tombstones(group_id)], now)
            except KafkaError as error:
                reply(Joined(error.code, request.member_id))
            else:
                self.classic.join(request, reply, now)
        elif self._consumer_settings(group_id).mixed:
            reply(self._classic_members.join(request, now))
        else:
            reply(Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))

    def sync(self, request: SyncRequest, reply: SyncReply, now: Now) -> None:
        """`reply` is called once, now or later."""
        if request.group_id in self.consumer.groups:
            reply(self._classic_members.sync(request, now))
        else:
            self.classic.sync(request, reply, now)

    def classic_heartbeat(
        self, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None, now: Now
    ) -> ErrorCode:
        """Of a member of the classic protocol."""
        groups = self._classic_members if group_id in self.consumer.groups else self.classic
        return groups.heartbeat(group_id, generation_id, member_id, group_instance_id, now)

    def leave(self, group_id: str, leaving: Iterable[tuple[str, str | None]], now: Now) -> list[ErrorCode]:
        """Remove members of a group of either protocol. Returns an error code for each (member id, instance id)."""
        groups = self._classic_members if group_id in self.consumer.groups else self.classic
        return groups.leave(group_id, leaving, now)

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        settings = self._consumer_settings(group.group_id)
        of_consumers = group.protocol_type == CONSUMER and bool(group.members)
        return settings.upgrades and of_consumers and len(group.members) <= settings.members_max

    def _downgrade(self, before: ConsumerGroup, after: ConsumerGroup, now: Now) -> bool:
        """Whether the group has become a classic one. Raises KafkaError."""
        if len(after.members) > self._limits().members_max:
            return False
        group = downgraded(after, before.group_epoch, self._topics, now)
        if group is None:
            return False
        self.classic.adopt(group, self.consumer.tombstones(before.group_id), now)
        return True

    def check_commit(
        self,
        group_id: str,
        epoch: int,
        member_id: str,
        instance_id: str | None,
        partitions: Iterable[TopicPartition],
        now: Now,
        *,
        in_transaction: bool,
    ) -> None:
        """Check that the member may commit offsets in this generation or member epoch. Raises KafkaError."""
        if group_id in self.share.groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a share group.")
        if group_id in self.consumer.groups:
            self.consumer.check_commit(group_id, epoch, member_id, in_transaction=in_transaction)
        elif group_id in self.streams.groups:
            self.streams.check_commit(group_id, epoch, member_id, partitions, in_transaction=in_transaction)
        else:
            self.classic.check_commit(group_id, epoch, member_id, instance_id, now, in_transaction=in_transaction)

    def subscription(self, group_id: str) -> Callable[[str], bool]:
        """Whether members of the group subscribe to a topic, as of now."""
        managed = self.consumer.groups.get(group_id) or self.streams.groups.get(group_id)
        if managed is not None:
            return frozenset(managed.topic_names()).__contains__
        group = self.classic.groups.get(group_id)
        return (lambda _: False) if group is None else group.is_subscribed_to

    def check_fetch(self, group_id: str, member_epoch: int, member_id: str | None) -> None:
        """Check that a client that may name a member may fetch offsets. Raises KafkaError."""
        self.consumer.check_fetch(group_id, member_epoch, member_id)
        self.streams.check_fetch(group_id, member_epoch, member_id)

    def uses_epochs(self, group_id: str, member_id: str) -> bool:
        """Whether it is a member that has to know member epochs to commit."""
        streams = self.streams.groups.get(group_id)
        return (streams is not None and member_id in streams.members) or self.consumer.uses_epochs(group_id, member_id)

    def _append_managed(self, decided: Sequence[ConsumerRecord] | Sequence[StreamsRecord], now: Now) -> None:
        """The classic group that has become a consumer or streams group is deleted in the same batch."""
        replaced = [
            GroupDeleted(group_id) for group_id in {each.group for each in decided} & self.classic.groups.keys()
        ]
        self.append([*replaced, *decided], now)

    def append(self, group_records: Sequence[GroupRecord], now: Now) -> None:
        """Append and replay the records. Raises KafkaError with the client's error code; nothing changes then."""
        self._log.append(group_records, now)

    def append_pending(self, producer: ProducerIdentity, commits: Sequence[OffsetCommitted], now: Now) -> None:
        """Append offsets that take effect when the producer's transaction is committed. Raises as `append` does."""
        producer_id, producer_epoch = producer
        pending = [OffsetPending(producer_id, commit) for commit in commits]
        self._log.append(pending, now, producer_id=producer_id, producer_epoch=producer_epoch)

    def forget(self, group_records: Sequence[GroupRecord], now: Now) -> None:
        """Append any number of tombstones, in several batches. If KafkaError is raised a part of them is appended."""
        for start in range(0, len(group_records), FORGET_BATCH_MAX):
            self.append(group_records[start : start + FORGET_BATCH_MAX], now)

    def delete(self, group_id: str, now: Now) -> None:
        """Delete the group. The state of a share group must have been deleted before.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or the error of the append.
        """
        if not self.has(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group_id in self.share.groups:
            self.share.empty(group_id)
            self.append(self.share.tombstones(group_id), now)
            return
        gone: list[GroupRecord] = [*self.offsets.delete(group_id)]
        if group_id in self.consumer.groups:
            self.consumer.check_delete(group_id)
            gone += self.consumer.tombstones(group_id)
        elif group_id in self.streams.groups:
            self.streams.check_delete(group_id)
            gone += self.streams.tombstones(group_id)
        else:
            self.classic.check_delete(group_id)
            gone.append(GroupDeleted(group_id))
        self.forget(gone, now)

    def expire(self, group_ids: Iterable[str], *, retention_ms: int, now: Now) -> None:
        """Delete expired offsets of these groups, and groups without members and offsets. Raises KafkaError."""
        forgotten: list[GroupRecord] = []
        for group_id in group_ids:
            group = self.classic.groups.get(group_id)
            managed = self.consumer.groups.get(group_id) or self.streams.groups.get(group_id)
            committed = self.offsets.committed(group_id)
            if managed is not None:
                gone = expired_of_managed_group(
                    managed.topic_names(), committed, retention_ms=retention_ms, now_ms=now.wall_ms
                )
            else:
                gone = expired(group, committed, retention_ms=retention_ms, now_ms=now.wall_ms)
            pending = self.offsets.unstable(group_id)  # a tombstone would supersede these when they are committed
            gone = [tp for tp in gone if tp not in pending]
            forgotten += self.offsets.delete(group_id, gone)
            self._counts.offset_expirations += len(gone)
            stays = len(gone) < len(committed) or pending
            if group is not None and group.is_unused and not stays:
                forgotten.append(GroupDeleted(group_id))
            if managed is not None and not managed.members and not stays:
                forgotten += [*self.consumer.tombstones(group_id), *self.streams.tombstones(group_id)]
        self.forget(forgotten, now)

    def replay(self, record: GroupRecord) -> None:
        """Apply a record of the log."""
        if isinstance(record, GroupCommitted | GroupDeleted):
            self.classic.replay(record)
        elif isinstance(record, OffsetCommitted | OffsetPending | TransactionEnded | OffsetDeleted):
            self.offsets.replay(record)
        elif isinstance(record, ShareGroupRecord):
            self.share.replay(record)
        elif isinstance(record, StreamsRecord):
            self.streams.replay(record)
        else:
            self.consumer.replay(record)


def _encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    assert not isinstance(record, TransactionEnded), "replay of a TransactionEnded that is not a marker"
    return records.encode(record.committed if isinstance(record, OffsetPending) else record)


def _decode(header: BatchHeader, record: Record) -> GroupRecord | None:
    if header.is_control:
        marker = marker_of(record)
        return None if marker is None else TransactionEnded(header.producer_id, marker.committed)
    decoded = records.decode(record.key or b"", record.value)
    if header.is_transactional and isinstance(decoded, OffsetCommitted):
        return OffsetPending(header.producer_id, decoded)
    return decoded
