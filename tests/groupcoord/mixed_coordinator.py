"""A shard with groups of both protocols over a list, and clients of the classic protocol that do as it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from raylog.config.groups import GroupLimits
from raylog.config.share_groups import share_group_settings
from raylog.config.streams_groups import streams_group_settings
from raylog.config.table import broker_configs
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord import records
from raylog.groupcoord.classic.group import Joined, Synced
from raylog.groupcoord.classic.groups import JoinRequest, SyncRequest
from raylog.groupcoord.consumer.heartbeat import Answer, Heartbeat
from raylog.groupcoord.consumer.records import NO_PARTITIONS, Partitions
from raylog.groupcoord.records import GroupRecord
from raylog.groupcoord.shard import GroupCounts, GroupShard
from raylog.protocol import consumer_protocol
from raylog.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.groupcoord.consumer_coordinator import REBALANCE_MS, SESSION_MS, ConsumerCoordinator

LIMITS = GroupLimits(
    session_timeout_min_ms=1, session_timeout_max_ms=10**6, initial_rebalance_delay_ms=0, members_max=50, groups_max=100
)
NO_GENERATION = -1


class MixedCoordinator(ConsumerCoordinator):
    """The consumer groups are those of a whole shard."""

    def restart(self) -> None:
        self.shard = self.replayed_shard(self.log)
        self.consumer = self.shard.consumer
        self.shard.loaded(self.now)

    def replayed_shard(self, log: Sequence[tuple[bytes, bytes | None]]) -> GroupShard:
        partition: Any = SimpleNamespace(log=None, leader_epoch=1)
        shard = GroupShard(
            partition,
            limits=lambda: LIMITS,
            consumer_settings=lambda _: self.settings,
            share_settings=lambda _: share_group_settings(broker_configs({})),
            streams_settings=lambda _: streams_group_settings(broker_configs({})),
            initialize=lambda *_: None,
            topics=self.topics,
            new_id=lambda: str(next(self._ids)),
            on_append=lambda *_: None,
            counts=GroupCounts(),
        )
        shard._log = SimpleNamespace(append=self._append_all)  # type: ignore[assignment]
        for key, value in log:
            decoded = records.decode(key, value)
            assert decoded is not None
            shard.replay(decoded)
        return shard

    def _append_all(self, decided: Sequence[GroupRecord], now: Now) -> None:
        if self.appends_fail_with is not None:
            raise KafkaError(self.appends_fail_with)
        for record in decided:
            self.log.append(records.encode(record))  # type: ignore[arg-type]
            decoded = records.decode(*self.log[-1])
            assert decoded == record
            self.shard.replay(record)

    @property
    def is_consumer_group(self) -> bool:
        assert not ("g" in self.shard.classic.groups and "g" in self.consumer.groups)
        return "g" in self.consumer.groups

    @property
    def member_ids(self) -> set[str]:
        group: Any = self.consumer.groups.get("g") or self.shard.classic.groups.get("g")
        return set() if group is None else set(group.members)

    def heartbeat(self, member_id: str, member_epoch: int, group: str = "g", **more: Any) -> Answer:
        request = Heartbeat(group_id=group, member_id=member_id, member_epoch=member_epoch, **more)
        return self.shard.heartbeat(request, self.now, may_describe=lambda _: True)

    def pass_time(self, ms: int) -> None:
        end_ms = self._ms + ms
        while True:
            due = [self.shard.classic.next_deadline_ms(), self.consumer.next_deadline_ms()]
            due_ms = min((each for each in due if each is not None), default=end_ms + 1)
            if due_ms > end_ms:
                break
            self._ms = max(self._ms, due_ms)
            self.shard.classic.tick(self.now)
            self.consumer.tick(self.now)
        self._ms = end_ms


@dataclass(eq=False)
class ClassicClient:
    """A consumer with an eager or a cooperative assignor. Each `beat` is its next step."""

    coordinator: MixedCoordinator
    topics: tuple[str, ...]
    cooperative: bool = False
    instance_id: str | None = None
    member_id: str = ""
    generation: int = NO_GENERATION
    owned: Partitions = NO_PARTITIONS
    step: str = "join"
    """join, joining, sync, syncing or in."""
    leads: Sequence[tuple[str, str | None, bytes]] = ()
    errors: list[ErrorCode] = field(default_factory=list)

    @property
    def protocol(self) -> str:
        return "cooperative" if self.cooperative else "eager"

    def beat(self) -> None:
        if self.step == "join":
            self._join()
        elif self.step == "sync":
            self._sync()
        elif self.step == "in":
            self._heartbeat()

    def revoke(self) -> None:
        """What it is to give up, it gives up when it hears it."""

    def leave(self) -> None:
        if self.member_id:
            self.coordinator.shard.leave("g", [(self.member_id, None)], self.coordinator.now)
        self.abandon()

    def abandon(self) -> None:
        """It has lost everything, and is to join as another member."""
        self.member_id, self.generation, self.owned, self.step = "", NO_GENERATION, NO_PARTITIONS, "join"

    def _named(self, partitions: Partitions) -> list[TopicPartition]:
        topics = self.coordinator.topics
        found = [(topics.name(topic_id), number) for topic_id, number in partitions]
        return [TopicPartition(name, number) for name, number in found if name is not None]

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = NO_PARTITIONS
        said = ConsumerProtocolSubscription(
            topics=self.topics, owned_partitions=consumer_protocol.grouped(self._named(self.owned))
        )
        request = JoinRequest(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id="c",
            client_host="/h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=((self.protocol, consumer_protocol.encode(said)),),
            require_known_member_id=True,
            supports_skip_assignment=True,
        )
        self.step = "joining"
        self.coordinator.shard.join(request, self._joined, self.coordinator.now)

    def _joined(self, joined: Joined) -> None:
        if self.step != "joining":
            return
        if joined.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.step = joined.member_id, "join"
        elif joined.error_code is not ErrorCode.NONE:
            self._refused(joined.error_code)
        else:
            self.member_id, self.generation = joined.member_id, joined.generation_id
            self.leads = joined.members if joined.leader == joined.member_id else ()
            self.step = "sync"

    def _sync(self) -> None:
        request = SyncRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=self._shares(),
        )
        self.step = "syncing"
        self.coordinator.shard.sync(request, self._synced, self.coordinator.now)

    def _shares(self) -> dict[str, bytes]:
        """As the leader: in turn. What another member still has, nobody gets before that has given it up."""
        said = {
            member_id: consumer_protocol.decode(ConsumerProtocolSubscription, metadata)
            for member_id, _, metadata in self.leads
        }
        claims = {
            tp: member_id for member_id, each in said.items() for tp in consumer_protocol.flat(each.owned_partitions)
        }
        shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in said}
        for name, shape in self.coordinator.topics.shapes.items():
            takers = sorted(member_id for member_id, each in said.items() if name in each.topics)
            for number in range(shape.partition_count if takers else 0):
                taker, tp = takers[number % len(takers)], TopicPartition(name, number)
                if claims.get(tp, taker) == taker:
                    shares[taker].append(tp)
        return {
            member_id: consumer_protocol.encode(
                ConsumerProtocolAssignment(assigned_partitions=consumer_protocol.grouped(share), user_data=b"")
            )
            for member_id, share in shares.items()
        }

    def _synced(self, synced: Synced) -> None:
        if self.step != "syncing":
            return
        if synced.error_code is not ErrorCode.NONE:
            self._refused(synced.error_code)
            return
        assigned: Partitions = NO_PARTITIONS
        if synced.assignment:
            content = consumer_protocol.decode(ConsumerProtocolAssignment, synced.assignment)
            shapes = self.coordinator.topics.shapes
            assigned = frozenset(
                (shapes[tp.topic].topic_id, tp.partition)
                for tp in consumer_protocol.flat(content.assigned_partitions)
                if tp.topic in shapes
            )
        gives_up = self.owned - assigned
        self.owned = assigned
        self.step = "join" if gives_up else "in"

    def _heartbeat(self) -> None:
        code = self.coordinator.shard.classic_heartbeat(
            "g", self.generation, self.member_id, self.instance_id, self.coordinator.now
        )
        if code is not ErrorCode.NONE:
            self._refused(code)

    def _refused(self, code: ErrorCode) -> None:
        self.errors.append(code)
        self.step = "join"
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.abandon()
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self.generation, self.owned = NO_GENERATION, NO_PARTITIONS
