"""A consumer's membership of its group, by Kafka's classic rebalance protocol. Sans-IO.

    OUT --poll--> LEAVING --------> JOINING --> ASSIGNING (leader) --> SYNCING --> ENTERING --------> IN
     ^                                 |                                  |                           |
     +------ errors, or a rebalance ---+----------------------------------+---------------------------+

In LEAVING and ENTERING the rebalance callbacks for revoked, lost and assigned partitions are due: poll() takes them
from `next_callback` and calls them in the user's thread. Before partitions are revoked, their offsets are committed if
enable.auto.commit says so.

Eager assignors give everything up before they join. Cooperative ones keep it, give up what the new assignment lacks,
and join again so that others get that (KIP-429).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

from raylog.client.backoff import backoff_ms
from raylog.client.consumer.assignors import Assignor, MemberSubscription
from raylog.client.consumer.coordinator_requests import CoordinatorRequest, CoordinatorRequests
from raylog.client.consumer.rebalance_callbacks import CallbackKind, RebalanceCallback, RebalanceCallbacks
from raylog.client.consumer.subscription import Subscription
from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.group_offsets import GroupMetadata
from raylog.client.network_client import NetworkClient
from raylog.config.consumer import ConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol import consumer_protocol
from raylog.protocol.consumer_protocol import (
    NO_GENERATION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.protocol.messages.heartbeat import HeartbeatRequest
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raylog.protocol.registry import LEAVE_GROUP
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

log = logging.getLogger("raylog.client")
CONSUMER: Final = "consumer"
JOIN_EXTRA_MS: Final = 5_000
"""A JoinGroup waits on the broker for the rebalance timeout; its response may take this much longer."""
MEMBERS_SINCE: Final = 3
UNKNOWN_HERE: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class Step(Enum):
    """The state of the membership."""

    OUT = "out"
    LEAVING = "leaving"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    ENTERING = "entering"
    IN = "in"


class GroupMember:
    """A service of the network. `polling` says that the user is in poll()."""

    def __init__(
        self,
        network: NetworkClient,
        coordinators: Coordinators,
        requests: CoordinatorRequests,
        subscription: Subscription,
        settings: ConsumerSettings,
        assignors: Sequence[Assignor],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self.step = Step.OUT
        self.polling = False
        self.polled_ms: int | None = None
        """When poll() was last entered or left."""
        self.callbacks = RebalanceCallbacks(subscription)
        self.leader_topics: frozenset[str] = frozenset()
        """What all members want, while this one leads the group."""
        self.fenced: KafkaError | None = None
        """Why this member can never join again."""
        self._network = network
        self._coordinators = coordinators
        self._requests = requests
        self._subscription = subscription
        self._settings = settings
        self._assignors = {each.name: each for each in assignors}
        self._on_error = on_error
        self._cooperative = all(each.cooperative for each in assignors)
        self._group_id = settings.group_id
        self._member_id = ""
        self._generation = NO_GENERATION
        self._protocol = ""
        self._wants_join = False
        self._reason = ""
        self._joined_topics: frozenset[str] = frozenset()
        """What the member has told the group that it wants."""
        self._counts: Mapping[str, int] = {}
        """The partitions of the topics when this member last assigned them, or began to lead the group."""
        self._members: Sequence[MemberSubscription] = ()
        """Those to assign partitions to; empty if the coordinator skips the assignment (KIP-814)."""
        self._shares: tuple[SyncGroupRequestAssignment, ...] = ()
        """What this member, as the leader, has shared out."""
        self._assigned: Sequence[TopicPartition] = ()
        """What it got last, and in which generation."""
        self._assigned_generation = NO_GENERATION
        self._topics_from = 0
        """The metadata response from which on the topics of a pattern, and those of the members, are known."""
        self._asked: object | None = None
        """The JoinGroup or SyncGroup in flight."""
        self._beating = False
        self._heartbeat_due_ms = 0
        self._alive_ms = 0
        """When the coordinator last answered a heartbeat."""
        self._due_ms = 0
        self._attempts = 0
        self._ran_ms = 0

    @property
    def metadata(self) -> GroupMetadata:
        """As whom to commit now."""
        if not self._subscription.by_group:
            return GroupMetadata(self._group_id)
        return GroupMetadata(self._group_id, self._generation, self._member_id, self._settings.instance_id)

    @property
    def is_member(self) -> bool:
        return self._generation != NO_GENERATION

    # --- the user

    def subscribed(self) -> None:
        """The subscription has changed."""
        if self._subscription.pattern is not None:
            self._topics_from = self._network.metadata.updates + 1
        self.rejoin("the subscription has changed")

    def rejoin(self, reason: str) -> None:
        """Have the group rebalance."""
        self._wants_join = True
        self._reason = reason

    def next_callback(self) -> RebalanceCallback | None:
        """The callback to call now. `callback_done` follows."""
        return self.callbacks.next()

    def callback_done(self, now: Now) -> None:
        self.callbacks.finished()
        self.run(now)

    def leave(
        self, reason: str, now: Now, timeout_ms: int, *, leave_group: bool | None = None
    ) -> CoordinatorRequest | None:
        """Send LeaveGroup, and forget the membership; no callback is called.

        With None for `leave_group`, members with an instance id stay. Returns the request to the coordinator; None if
        there is none.
        """
        request = None
        leaves = self._settings.instance_id is None if leave_group is None else leave_group
        if self._member_id and leaves:
            deadline_ms = now.monotonic_ms + timeout_ms
            request = CoordinatorRequest(self._leave_request(reason), _no_error, deadline_ms, retries=False)
            self._requests.add(request)
        self._member_id = ""
        self._generation = NO_GENERATION
        self.leader_topics = frozenset()
        self.callbacks.clear()
        self._begin_anew()
        return request

    # --- as a service

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        if not self._subscription.by_group or self.fenced is not None:
            return
        self._watch_poll(now)
        self._watch_topics()
        self._heartbeat(now)
        self._prepare_callback(now)
        wants_join = self.step is Step.OUT or (self.step is Step.IN and self._wants_join)
        if (
            wants_join
            and self.polling
            and self.callbacks.running is None
            and self._network.metadata.updates >= self._topics_from
        ):
            self._prepare(now)
        if self.step is Step.LEAVING and self.callbacks.done:
            self.step = Step.JOINING
        if self.step is Step.JOINING:
            self._join(now)
        if self.step is Step.ASSIGNING:
            self._assign(now)
        if self.step is Step.SYNCING:
            self._sync(now)
        if self.step is Step.ENTERING and self.callbacks.done:
            self.step = Step.IN
            self.run(now)

    def next_deadline_ms(self) -> int | None:
        if not self._subscription.by_group:
            return None
        due = []
        if self.is_member:
            due += [self._heartbeat_due_ms, self._alive_ms + self._settings.session_ms]
            if not self.polling and self.polled_ms is not None:
                due.append(self.polled_ms + self._settings.poll_ms_max)
        if self.step in (Step.JOINING, Step.SYNCING):
            due.append(self._due_ms)
        return min((ms for ms in due if ms > self._ran_ms), default=None)

    def _watch_poll(self, now: Now) -> None:
        if self.polling or not self._member_id or self.polled_ms is None:
            return
        if now.monotonic_ms >= self.polled_ms + self._settings.poll_ms_max:
            log.warning("left the group: poll() was not called", extra={"group": self._group_id})
            self.polled_ms = None
            reason = "poll() was not called within max.poll.interval.ms"
            self.leave(reason, now, self._settings.network.request_timeout_ms)

    def _watch_topics(self) -> None:
        """Join again if what is wanted has changed, or for a leader if partitions were added or topics deleted."""
        metadata = self._network.metadata
        pattern = self._subscription.pattern
        if pattern is not None:
            self._subscription.topics = frozenset(
                name
                for name, topic in metadata.topics.items()
                if pattern.match(name) and topic.usable and not (self._settings.exclude_internal and topic.is_internal)
            )
        if self.step is not Step.IN:
            return
        if self._subscription.topics != self._joined_topics:
            self.rejoin("the subscribed topics have changed")
        elif self.leader_topics and self._partition_counts() != self._counts:
            self.rejoin("partitions were added, or topics deleted")

    def _coordinator(self) -> int | None:
        try:
            return self._coordinators.node_id(KeyType.GROUP, self._group_id)
        except KafkaError as error:
            self._on_error(error)
            return None

    # --- rebalance callbacks

    def _prepare_callback(self, now: Now) -> None:
        if self.polling:
            self.callbacks.prepare(now, is_member=self.is_member)

    def _prepare(self, now: Now) -> None:
        """Give up what has to be given up before the member joins."""
        subscription = self._subscription
        subscription.set_partitions([tp for tp, state in subscription.partitions.items() if state.announced])
        owned = subscription.partitions
        if not self.is_member:
            given_up, kind = list(owned), CallbackKind.LOST
        elif self._cooperative:
            given_up, kind = [tp for tp in owned if tp.topic not in subscription.topics], CallbackKind.REVOKED
        else:
            given_up, kind = list(owned), CallbackKind.REVOKED
        self.step = Step.LEAVING
        self.callbacks.clear()
        if given_up:
            self.callbacks.give_up(given_up, kind)
        self._prepare_callback(now)

    # --- joining

    def _join(self, now: Now) -> None:
        if self._asked is not None or now.monotonic_ms < self._due_ms:
            return
        node_id = self._coordinator()
        if node_id is None:
            return
        self._wants_join = False
        topics = self._joined_topics = self._subscription.topics
        owned = tuple(self._subscription.partitions)
        protocols = []
        for name, assignor in self._assignors.items():
            content = ConsumerProtocolSubscription(
                topics=tuple(sorted(topics)),
                user_data=assignor.user_data(owned or self._assigned, self._assigned_generation),
                owned_partitions=consumer_protocol.grouped(owned),
                generation_id=self._generation,
                rack_id=self._settings.rack or None,
            )
            protocols.append(JoinGroupRequestProtocol(name=name, metadata=consumer_protocol.encode(content)))
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_ms,
            rebalance_timeout_ms=self._settings.poll_ms_max,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=CONSUMER,
            protocols=tuple(protocols),
            reason=self._reason or None,
        )
        self._ask(node_id, request, self._joined, now)

    def _ask(self, node_id: int, request: Message, answered: Callable[[Any, Now], None], now: Now) -> None:
        """Responses that come after the member has begun anew are ignored."""
        asked = self._asked = object()

        def heeded(then: Callable[[Any, Now], None], response: Any, now: Now) -> None:
            if self._asked is asked:
                self._asked = None
                then(response, now)

        timeout_ms = max(self._settings.network.request_timeout_ms, self._settings.poll_ms_max + JOIN_EXTRA_MS)
        self._network.ask(
            node_id,
            request,
            partial(heeded, answered),
            partial(heeded, self._fail),
            now,
            timeout_ms=timeout_ms,
            coordinator=True,
        )

    def _joined(self, response: Any, now: Now) -> None:
        code = response.error_code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            return
        if code is not ErrorCode.NONE:
            self._refused(code, now)
            return
        self._attempts = 0
        self._member_id, self._generation = response.member_id, response.generation_id
        self._protocol = response.protocol_name or ""
        self._alive_ms = now.monotonic_ms
        self._heartbeat_due_ms = now.monotonic_ms + self._settings.heartbeat_ms
        self.leader_topics = frozenset()
        self._members = self._shares = ()
        if response.leader != response.member_id:
            self.step = Step.SYNCING
            return
        try:
            self._members = [_subscription(member) for member in response.members]
        except KafkaError as error:
            self._fail(error, now)
            return
        self.leader_topics = frozenset(topic for member in self._members for topic in member.topics)
        metadata = self._network.metadata
        if metadata.all_topics and not self.leader_topics <= metadata.topics.keys():
            self._topics_from = metadata.updates + 1
            metadata.expire()
        if response.skip_assignment:
            self._members = ()
        self.step = Step.ASSIGNING

    def _assign(self, now: Now) -> None:
        """Once the topics of all members are known, which the consumer asks for.

        A response with all topics lacks those that do not exist, and those that this member may not describe.
        """
        metadata = self._network.metadata
        unknown = self.leader_topics - metadata.topics.keys()
        if unknown and not (metadata.all_topics and metadata.updates >= self._topics_from):
            return
        if unknown:
            log.warning("topics not assigned", extra={"group": self._group_id, "topics": sorted(unknown)})
        self._counts = self._partition_counts()
        try:
            shares = self._assignor().assign(self._members, self._counts) if self._members else {}
        except KafkaError as error:
            self._fail(error, now)
            self._begin_anew()
            return
        self._shares = tuple(
            SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=_encoded(shares.get(member.member_id, ()))
            )
            for member in self._members
        )
        self.step = Step.SYNCING

    def _assignor(self) -> Assignor:
        """The one that the coordinator has chosen. Raises KafkaError."""
        if self._protocol not in self._assignors:
            text = f"the coordinator has chosen the protocol {self._protocol!r}, which this member did not offer"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
        return self._assignors[self._protocol]

    def _partition_counts(self) -> dict[str, int]:
        found = ((topic, self._network.metadata.topic(topic)) for topic in self.leader_topics)
        return {topic: len(known.partitions) for topic, known in found if known is not None and known.usable}

    def _sync(self, now: Now) -> None:
        if self._asked is not None or now.monotonic_ms < self._due_ms:
            return
        node_id = self._coordinator()
        if node_id is None:
            return
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=CONSUMER,
            protocol_name=self._protocol,
            assignments=self._shares,
        )
        self._ask(node_id, request, self._synced, now)

    def _synced(self, response: Any, now: Now) -> None:
        if response.error_code is not ErrorCode.NONE:
            self._refused(response.error_code, now)
            return
        try:
            data = bytes(response.assignment)
            content = consumer_protocol.decode(ConsumerProtocolAssignment, data) if data else None
        except KafkaError as error:
            self._fail(error, now)
            return
        self._attempts = 0
        assigned = [] if content is None else consumer_protocol.flat(content.assigned_partitions)
        owned = set(self._subscription.partitions)
        self._assigned, self._assigned_generation = tuple(sorted(assigned)), self._generation
        given_up = sorted(owned - set(assigned))
        new = sorted(set(assigned) - owned)
        self.step = Step.ENTERING
        if given_up:
            self.callbacks.give_up(given_up, CallbackKind.REVOKED)
            self.rejoin("partitions were given up for other members")
        self.callbacks.gain(new)
        self._prepare_callback(now)

    # --- heartbeats

    def _heartbeat(self, now: Now) -> None:
        if not self.is_member or self.step is Step.JOINING or self.step is Step.OUT:
            return
        if now.monotonic_ms >= self._alive_ms + self._settings.session_ms:
            self._coordinators.refused(KeyType.GROUP, self._group_id, ErrorCode.NOT_COORDINATOR)
            self._alive_ms = now.monotonic_ms
        if self._beating or now.monotonic_ms < self._heartbeat_due_ms:
            return
        node_id = self._coordinator()
        if node_id is None:
            return
        generation, member_id = self._generation, self._member_id

        def beaten(code: ErrorCode, now: Now) -> None:
            self._beating = False
            if (generation, member_id) == (self._generation, self._member_id):
                self._beaten(code, now)

        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._settings.instance_id,
        )
        self._beating = True
        self._heartbeat_due_ms = now.monotonic_ms + self._settings.heartbeat_ms
        self._network.ask(
            node_id,
            request,
            lambda response, now: beaten(response.error_code, now),
            lambda error, now: beaten(error.code, now),
            now,
            timeout_ms=min(self._settings.network.request_timeout_ms, self._settings.session_ms),
            coordinator=True,
        )

    def _beaten(self, code: ErrorCode, now: Now) -> None:
        if code is ErrorCode.NONE:
            self._alive_ms = now.monotonic_ms
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._alive_ms = now.monotonic_ms
            if self.step is Step.IN or self.step is Step.ENTERING:
                self.rejoin("the group is rebalancing")
        else:
            self._refused_membership(code)
            if not code.retriable and code not in UNKNOWN_HERE and self.fenced is None:
                self._on_error(KafkaError(code, f"group {self._group_id!r}: {code.sentence}"))

    # --- errors

    def _refused(self, code: ErrorCode, now: Now) -> None:
        """JoinGroup or SyncGroup was answered with an error."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS or code in UNKNOWN_HERE:
            self._refused_membership(code)
            self._begin_anew()
            return
        self._fail(KafkaError(code, f"group {self._group_id!r}: {code.sentence}"), now)

    def _refused_membership(self, code: ErrorCode) -> None:
        self._coordinators.refused(KeyType.GROUP, self._group_id, code)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            text = f"another consumer has the group.instance.id {self._settings.instance_id!r}"
            self.fenced = KafkaError(code, text)
        elif code in UNKNOWN_HERE:
            log.warning("membership lost", extra={"group": self._group_id, "error": code.name})
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            self._generation = NO_GENERATION
            self.rejoin(f"the group has gone on without this member ({code.name})")

    def _fail(self, error: KafkaError, now: Now) -> None:
        self._refused_membership(error.code)
        settings = self._settings.network
        self._attempts += 1
        pause_ms = backoff_ms(
            self._attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._network.jitter
        )
        self._due_ms = now.monotonic_ms + pause_ms
        if not error.code.retriable and self.fenced is None:
            self._on_error(error)
        if self.step is Step.SYNCING and not error.code.retriable:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Join again; what is owned is given up first where that is due."""
        self.step = Step.OUT
        self._asked = None

    def _leave_request(self, reason: str) -> Callable[[VersionFor], Message]:
        group_id, member_id, instance_id = self._group_id, self._member_id, self._settings.instance_id

        def request(version_for: VersionFor) -> Message:
            if version_for(LEAVE_GROUP) < MEMBERS_SINCE:
                return LeaveGroupRequest(group_id=group_id, member_id=member_id)
            leaving = MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
            return LeaveGroupRequest(group_id=group_id, members=(leaving,))

        return request


def _subscription(member: Any) -> MemberSubscription:
    """Raises KafkaError."""
    content = consumer_protocol.decode(ConsumerProtocolSubscription, bytes(member.metadata))
    return MemberSubscription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        topics=frozenset(content.topics),
        owned=consumer_protocol.flat(content.owned_partitions),
        generation=content.generation_id,
        user_data=content.user_data,
        rack=content.rack_id,
    )


def _encoded(partitions: Sequence[TopicPartition]) -> bytes:
    return consumer_protocol.encode(
        ConsumerProtocolAssignment(assigned_partitions=consumer_protocol.grouped(partitions))
    )


def _no_error(_: object) -> None:
    """The member has left, whatever the coordinator says."""
