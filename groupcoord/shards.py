"""The groups that this node coordinates: a shard for each partition of __consumer_offsets that it leads.

A shard's state in memory is dropped with the leadership. Members that wait for an answer get NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from raylog.config.consumer_groups import ConsumerGroupSettings
from raylog.config.groups import GroupLimits
from raylog.config.share_groups import ShareGroupSettings
from raylog.config.streams_groups import StreamsGroupSettings
from raylog.coordination.shards import Coordinated, Coordinates, CoordinatorShards
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerIdentity, TopicPartition
from raylog.groupcoord.offsets import Commit
from raylog.groupcoord.records import (
    OffsetCommitted,
    TransactionEnded,
)
from raylog.groupcoord.shard import GroupCounts, GroupShard
from raylog.groupcoord.share.groups import Initialize
from raylog.groupcoord.topics import Topics
from raylog.replication.partition import Partition

OFFSETS_TOPIC = "__consumer_offsets"
EXPIRE_STEP_GROUPS = 200
"""How many groups are checked for expired offsets before others are served."""


class GroupShards:
    """All shards of this node."""

    def __init__(
        self,
        node: Coordinated,
        *,
        limits: Callable[[], GroupLimits],
        consumer_settings: Callable[[str], ConsumerGroupSettings],
        share_settings: Callable[[str], ShareGroupSettings],
        streams_settings: Callable[[str], StreamsGroupSettings],
        initialize: Initialize,
        topics: Topics,
        new_id: Callable[[], str],
    ) -> None:
        def make(partition: Partition) -> GroupShard:
            return GroupShard(
                partition,
                limits=limits,
                consumer_settings=consumer_settings,
                share_settings=share_settings,
                streams_settings=streams_settings,
                initialize=initialize,
                topics=topics,
                new_id=new_id,
                on_append=node.partition_appended,
                counts=self.counts,
            )

        self.counts = GroupCounts()
        self._shards = CoordinatorShards(OFFSETS_TOPIC, node, make)
        self._add_steps = node.add_steps
        self._limits = limits
        self._expiring: list[tuple[GroupShard, list[str]]] = []
        """The groups that are still to be checked for expired offsets."""
        self._deadline_ms: int | None = None
        self._deadline_known = True
        """False if a deadline may have changed: the next deadline is requested after every event of the node."""

    def shard(self, exchange: Coordinates, group: str) -> GroupShard:
        """The shard of the group; from now on the response to `exchange` depends on its log.

        Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, or the error of a
        log that cannot be read.
        """
        self._deadline_known = False
        shard = self._shards.of(group, exchange.now)
        exchange.depends_on(shard)
        return shard

    def named(self, exchange: Coordinates, group: str) -> GroupShard:
        """The shard of a group that has a name. Raises KafkaError as `shard`, and INVALID_GROUP_ID."""
        if not group:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.shard(exchange, group)

    def check_room(self, exchange: Coordinates, group: str) -> None:
        """Check that the group exists or may be created. Raises KafkaError: POLICY_VIOLATION, or as `shard`."""
        if self.shard(exchange, group).has(group):
            return
        count = sum(shard.group_count() for shard in self._shards.all())
        if count >= self._limits().groups_max:
            message = f"This broker has {count} groups and may not have more: max.groups.per.broker."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)

    def all(self, exchange: Coordinates) -> Iterator[GroupShard]:
        """All shards of this node; the response depends on all of them.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while one is not loaded.
        """
        if self._shards.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for shard in self._shards.all():
            exchange.depends_on(shard)
            yield shard

    def commit(
        self,
        exchange: Coordinates,
        group: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        metadata_bytes_max: int,
        unknown_group: ErrorCode,
        supports_member_epochs: bool = True,
        producer: ProducerIdentity | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets, with `producer` as part of its transaction. Returns a code for each partition.

        Raises KafkaError if the group rejects the commit or the append fails; `unknown_group` for a generation of a
        group that does not exist; POLICY_VIOLATION if it would be one group too many; UNSUPPORTED_VERSION for a member
        of a consumer group whose request does not support member epochs.
        """
        self.check_room(exchange, group)
        shard, now = self.shard(exchange, group), exchange.now
        if generation_id >= 0 and not shard.has(group):
            raise KafkaError(unknown_group)
        if generation_id >= 0 and not supports_member_epochs and shard.uses_epochs(group, member_id):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        in_transaction = producer is not None
        shard.check_commit(
            group, generation_id, member_id, group_instance_id, commits, now, in_transaction=in_transaction
        )
        outcome = shard.offsets.commit(group, commits, metadata_bytes_max=metadata_bytes_max, now_ms=now.wall_ms)
        try:
            if producer is None:
                shard.append(outcome.records, now)
            else:
                shard.append_pending(producer, outcome.records, now)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, error.message) from error
            raise
        self.counts.offset_commits += len(outcome.records)
        return outcome.response

    def fetch(
        self, exchange: Coordinates, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetCommitted | None]:
        """The committed offsets of the group: those of `partitions`, or all. Raises KafkaError."""
        offsets = self.shard(exchange, group).offsets
        return offsets.fetch_all(group) if partitions is None else offsets.fetch(group, partitions)

    def coordinated(self) -> Iterator[GroupShard]:
        """The loaded shards of this node, for metrics: not all that they show is committed."""
        return self._shards.all()

    def topics_changed(self) -> None:
        """A topic was created or deleted, or has more partitions."""
        for shard in self._shards.loaded.values():
            shard.consumer.topics_changed()
            shard.share.topics_changed()
            shard.streams.topics_changed()

    def topic_deleted(self, topic: str, now: Now) -> None:
        """Delete all offsets of a deleted topic in the shards of this broker. Shards whose append fails keep them.

        Such an offset has no effect unless a topic of the same name is created.
        """
        for shard in self._shards.all():
            with _log_may_fail():
                shard.forget(shard.offsets.topic_deleted(topic).records, now)

    def unstable(self, exchange: Coordinates, group: str) -> set[TopicPartition]:
        """The partitions in which an open transaction has a pending offset of the group. Raises KafkaError."""
        return self.shard(exchange, group).offsets.unstable(group)

    def transaction_ended(self, number: int, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction marker that was just appended to this partition, which this broker leads."""
        shard = self._shards.loaded.get(number)
        if shard is not None:
            shard.replay(TransactionEnded(producer_id, committed))

    # --- time and leadership

    def tick(self, now: Now) -> None:
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now.monotonic_ms:
            return
        self._deadline_known = False
        for shard in self._shards.loaded.values():
            shard.classic.tick(now)
            shard.consumer.tick(now)
            shard.share.tick(now)
            shard.streams.tick(now)

    def next_deadline_ms(self) -> int | None:
        if not self._deadline_known:
            deadlines = (
                ms
                for shard in self._shards.loaded.values()
                for ms in (
                    shard.classic.next_deadline_ms(),
                    shard.consumer.next_deadline_ms(),
                    shard.share.next_deadline_ms(),
                    shard.streams.next_deadline_ms(),
                )
            )
            self._deadline_ms = min((ms for ms in deadlines if ms is not None), default=None)
            self._deadline_known = True
        return self._deadline_ms

    def expire(self, *, retention_ms: int) -> None:
        """Begin to delete expired offsets and groups, in steps; appends that fail are retried at the next check."""
        if not self._expiring:
            self._expiring = [(shard, sorted(shard.group_ids())) for shard in self._shards.all()]
            self._add_steps(partial(self._expire_some, retention_ms))

    def _expire_some(self, retention_ms: int, now: Now) -> bool:
        self._deadline_known = False
        if self._expiring:
            shard, group_ids = self._expiring[-1]
            if shard in self._shards.all():
                with _log_may_fail():
                    shard.expire(group_ids[-EXPIRE_STEP_GROUPS:], retention_ms=retention_ms, now=now)
                del group_ids[-EXPIRE_STEP_GROUPS:]
            else:
                group_ids.clear()  # another node coordinates them now
            if not group_ids:
                self._expiring.pop()
        return bool(self._expiring)

    def leadership_changed(self, tp: TopicPartition, now: Now) -> None:
        """The leader or leader epoch of a partition has changed, or the partition was deleted."""
        shard = self._shards.leadership_changed(tp, now)
        self._deadline_known = False
        if shard is not None:
            shard.classic.unload()


@contextmanager
def _log_may_fail() -> Iterator[None]:
    """For periodic tasks: ignore the error of one shard, so that the other shards are processed."""
    try:
        yield
    except KafkaError:
        pass
