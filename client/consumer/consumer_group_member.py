"""A consumer's membership of a group whose coordinator assigns the partitions (KIP-848). Sans-IO.

    OUT --poll--> LOSING --> JOINING --epoch--> IN --what it has and what it is to have differ--> RECONCILING --> IN
     ^                                          |                                                    |
     +------- fenced, or removed ---------------+----------------------------------------------------+

The member says in heartbeats what it subscribes to and what it owns, and hears its epoch and what it is to own. While
reconciling it commits the offsets of what it is to give up, and the rebalance callbacks are due: on_revoke, then
on_assign. The next heartbeat says what it owns then, which releases partitions for others.

A fenced member has lost everything: once on_lost was called, in LOSING, it joins again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Final
from uuid import UUID

from raylog.client.consumer.coordinator_requests import CoordinatorRequest, CoordinatorRequests
from raylog.client.consumer.rebalance_callbacks import CallbackKind, RebalanceCallback, RebalanceCallbacks
from raylog.client.consumer.subscription import Subscription
from raylog.client.coordinators import Coordinators
from raylog.client.group_offsets import GroupMetadata
from raylog.client.heartbeats import FENCED, JOINING_EPOCH, LEAVING_EPOCH, PASSING, Heartbeats
from raylog.client.network_client import NetworkClient
from raylog.config.consumer import ConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition, by_topic
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from raylog.protocol.registry import CONSUMER_GROUP_HEARTBEAT
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

log = logging.getLogger("raylog.client")
LEFT_FOR_A_WHILE: Final = -2
"""A static member that leaves so is expected back."""
NO_EPOCH: Final = -1
REGEX_SINCE: Final = 1


class Step(Enum):
    """The state of the membership."""

    OUT = "out"
    LOSING = "losing"
    JOINING = "joining"
    IN = "in"
    RECONCILING = "reconciling"


Said = tuple[tuple[str, ...], str | None, frozenset[TopicPartition]]
"""What the coordinator knows: topics, regular expression, owned partitions."""


class ConsumerGroupMember:
    """A service of the network, in the place of a `GroupMember`. `polling` says that the user is in poll()."""

    leader_topics: frozenset[str] = frozenset()
    """Such a group has no leader among its members."""

    def __init__(
        self,
        network: NetworkClient,
        coordinators: Coordinators,
        requests: CoordinatorRequests,
        subscription: Subscription,
        settings: ConsumerSettings,
        on_error: Callable[[KafkaError], None],
        *,
        member_id: str,
    ) -> None:
        """`member_id` is kept for the life of the consumer, and must be unique."""
        self.step = Step.OUT
        self.polling = False
        self.polled_ms: int | None = None
        """When poll() was last entered or left."""
        self.callbacks = RebalanceCallbacks(subscription)
        self.fenced: KafkaError | None = None
        """Why this member can never join again."""
        self._network = network
        self._requests = requests
        self._subscription = subscription
        self._settings = settings
        self._on_error = on_error
        self._group_id = settings.group_id
        self._member_id = member_id
        self._epoch = NO_EPOCH
        self._assigned: dict[UUID, tuple[int, ...]] = {}
        """What it is to own, as the coordinator said last."""
        self._topic_ids: dict[str, UUID] = {}
        """Of the topics that were assigned, also of those that the metadata lacks at present."""
        self._unknown_asked = -1
        """The number of the metadata response after which the names of assigned topics were asked for."""
        self._said: Said | None = None
        """What the coordinator has confirmed to know; None if it may not know it, so that everything is said again."""
        self._heartbeats = Heartbeats(network, coordinators, settings.group_id)
        self._ran_ms = 0

    @property
    def metadata(self) -> GroupMetadata:
        """As whom to commit now."""
        if not self._subscription.by_group or not self.is_member:
            return GroupMetadata(self._group_id)
        return GroupMetadata(self._group_id, self._epoch, self._member_id, self._settings.instance_id)

    @property
    def is_member(self) -> bool:
        return self._epoch > JOINING_EPOCH

    # --- the user

    def subscribed(self) -> None:
        """The subscription has changed: the next heartbeat, which is due at once, says so."""

    def rejoin(self, reason: str) -> None:
        """The coordinator decides when to assign anew: members cannot ask for it, as in Kafka."""
        log.warning("rebalance not enforced: the group uses the consumer protocol", extra={"reason": reason})

    def next_callback(self) -> RebalanceCallback | None:
        """The callback to call now. `callback_done` follows."""
        return self.callbacks.next()

    def callback_done(self, now: Now) -> None:
        self.callbacks.finished()
        self.run(now)

    def leave(
        self, reason: str, now: Now, timeout_ms: int, *, leave_group: bool | None = None
    ) -> CoordinatorRequest | None:
        """Send the last heartbeat, and forget the membership; no callback is called.

        With None for `leave_group`, members with an instance id leave for a while. Returns the request to the
        coordinator; None if there is none.
        """
        request = None
        instance_id = self._settings.instance_id
        epoch = LEFT_FOR_A_WHILE if instance_id is not None and not leave_group else LEAVING_EPOCH
        stays = leave_group is False and instance_id is None
        if self._epoch != NO_EPOCH and not stays:
            content = ConsumerGroupHeartbeatRequest(
                group_id=self._group_id, member_id=self._member_id, member_epoch=epoch, instance_id=instance_id
            )
            deadline_ms = now.monotonic_ms + timeout_ms
            request = CoordinatorRequest(lambda _: content, _no_error, deadline_ms, retries=False)
            self._requests.add(request)
            log.info("leaving the group", extra={"group": self._group_id, "reason": reason})
        self._forget()
        self.callbacks.clear()
        return request

    # --- as a service

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        if not self._subscription.by_group or self.fenced is not None:
            return
        self._watch_poll(now)
        self._match_pattern()
        if self.polling:
            self.callbacks.prepare(now, is_member=self.is_member)
        if self.step is Step.OUT and self.polling and self.callbacks.running is None:
            self._lose(now)
        if self.step is Step.LOSING and self.callbacks.done:
            self.step = Step.JOINING
            self._epoch = JOINING_EPOCH
        if self.step is Step.RECONCILING and self.callbacks.done:
            self.step = Step.IN
        if self.step is Step.IN and self.polling:
            self._reconcile(now)
        self._heartbeat(now)

    def next_deadline_ms(self) -> int | None:
        if not self._subscription.by_group or self.fenced is not None:
            return None
        due = []
        if self.step is not Step.OUT:
            due.append(self._heartbeats.next_ms())
        if self.step is not Step.OUT and not self.polling and self.polled_ms is not None:
            due.append(self.polled_ms + self._settings.poll_ms_max)
        return min((ms for ms in due if ms is not None and ms > self._ran_ms), default=None)

    def _watch_poll(self, now: Now) -> None:
        if self.polling or self.step is Step.OUT or self.polled_ms is None:
            return
        if now.monotonic_ms >= self.polled_ms + self._settings.poll_ms_max:
            log.warning("left the group: poll() was not called", extra={"group": self._group_id})
            self.polled_ms = None
            reason = "poll() was not called within max.poll.interval.ms"
            self.leave(reason, now, self._settings.network.request_timeout_ms)

    def _match_pattern(self) -> None:
        """A pattern of Python is matched here, unlike a regular expression, which the broker matches."""
        pattern = self._subscription.pattern
        if pattern is not None:
            self._subscription.topics = frozenset(
                name
                for name, topic in self._network.metadata.topics.items()
                if pattern.match(name) and topic.usable and not (self._settings.exclude_internal and topic.is_internal)
            )

    # --- joining and reconciling

    def _lose(self, now: Now) -> None:
        """Before it joins, a member gives up what it had when it was a member last."""
        subscription = self._subscription
        subscription.set_partitions([tp for tp, state in subscription.partitions.items() if state.announced])
        self.step = Step.LOSING
        self.callbacks.clear()
        if subscription.partitions:
            self.callbacks.give_up(list(subscription.partitions), CallbackKind.LOST)
            self.callbacks.prepare(now, is_member=False)

    def _reconcile(self, now: Now) -> None:
        """One step from what the member owns to what it is to own, as far as it has learned the names of its topics."""
        wanted = self._wanted()
        owned = set(self._subscription.partitions)
        given_up, new = sorted(owned - wanted), sorted(wanted - owned)
        if not given_up and not new:
            return
        self.step = Step.RECONCILING
        if given_up:
            self.callbacks.give_up(given_up, CallbackKind.REVOKED)
        if new:
            self.callbacks.gain(new)
        self.callbacks.prepare(now, is_member=True)

    def _wanted(self) -> set[TopicPartition]:
        metadata = self._network.metadata
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        found: set[TopicPartition] = set()
        for topic_id, numbers in self._assigned.items():
            name = metadata.name_of(topic_id) or names.get(topic_id)
            if name is not None:
                self._topic_ids[name] = topic_id
                found.update(TopicPartition(name, number) for number in numbers)
            elif self._unknown_asked != metadata.updates:
                self._unknown_asked = metadata.updates
                metadata.expire()
        return found

    # --- heartbeats

    def _says(self) -> Said:
        owned = frozenset(tp for tp, state in self._subscription.partitions.items() if state.announced)
        return tuple(sorted(self._subscription.topics)), self._subscription.regex, owned

    def _heartbeat(self, now: Now) -> None:
        if self.step in (Step.OUT, Step.LOSING) or (self.step is Step.JOINING and self._waits_for_topics()):
            return
        says = self._says()
        if not self._heartbeats.is_due(now, news=says != self._said):
            return
        try:
            self._heartbeats.send(self._request(says), partial(self._beaten, says), self._failed, now)
        except KafkaError as error:
            self._on_error(error)

    def _waits_for_topics(self) -> bool:
        """Whether the topics that match a pattern are not known yet."""
        return self._subscription.pattern is not None and not self._network.metadata.updates

    def _request(self, says: Said) -> Callable[[VersionFor], Message]:
        """Everything, or what the coordinator does not know yet."""
        names, regex, owned = says
        known = self._said
        joins = self._epoch == JOINING_EPOCH
        everything = joins or known is None
        said_owned = None
        if everything or (known is not None and owned != known[2]):
            said_owned = () if joins else self._by_id(owned)
        content = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._settings.instance_id,
            rack_id=(self._settings.rack or None) if everything else None,
            rebalance_timeout_ms=self._settings.poll_ms_max if everything else -1,
            subscribed_topic_names=names if everything or (known is not None and names != known[0]) else None,
            subscribed_topic_regex=_regex(regex, known, everything=everything),
            server_assignor=(self._settings.remote_assignor or None) if everything else None,
            topic_partitions=said_owned,
        )

        def request(version_for: VersionFor) -> Message:
            if version_for(CONSUMER_GROUP_HEARTBEAT) < REGEX_SINCE and regex is not None:
                text = "the broker cannot resolve regular expressions; subscribe to a compiled pattern instead"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
            return content

        return request

    def _by_id(self, partitions: frozenset[TopicPartition]) -> tuple[TopicPartitions, ...]:
        """By the ids with which the topics were assigned. What is left of a deleted topic is not said."""
        return tuple(
            TopicPartitions(topic_id=self._topic_ids[name], partitions=tuple(numbers))
            for name, numbers in by_topic(partitions)
            if name in self._topic_ids
        )

    def _beaten(self, said: Said, response: Any, now: Now) -> None:
        code = response.error_code
        if code is not ErrorCode.NONE:
            self._failed(KafkaError(code, f"group {self._group_id!r}: {response.error_message or code.sentence}"), now)
            return
        self._heartbeats.accepted(response.heartbeat_interval_ms, now)
        self._said = said
        if response.member_id:
            self._member_id = response.member_id
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._assigned = {topic.topic_id: tuple(topic.partitions) for topic in response.assignment.topic_partitions}
        if self.step is Step.JOINING:
            self.step = Step.IN
        self.run(now)

    # --- errors

    def _failed(self, error: KafkaError, now: Now) -> None:
        """A heartbeat was refused, or got no answer: the next one says everything."""
        code = error.code
        self._said = None
        self._heartbeats.refused(code, now)
        if code in FENCED or (code is ErrorCode.GROUP_ID_NOT_FOUND and self.is_member):
            log.warning("membership lost", extra={"group": self._group_id, "error": code.name})
            self._forget()
        elif code.retriable:
            return
        elif code in PASSING:
            self._on_error(error)
        else:
            self.fenced = _final(error, self._settings)
            self._forget()

    def _forget(self) -> None:
        """This is no member any more; what it owned is lost."""
        self.step = Step.OUT
        self._epoch = NO_EPOCH
        self._assigned = {}
        self._said = None
        self._heartbeats.drop()


def _regex(regex: str | None, known: Said | None, *, everything: bool) -> str | None:
    """What a heartbeat says of the regular expression: empty for one that was there and is not any more."""
    before = None if known is None else known[1]
    if everything:
        return regex
    return None if regex == before else regex or ""


def _final(error: KafkaError, settings: ConsumerSettings) -> KafkaError:
    """The error of every poll() from now on."""
    code = error.code
    if code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
        return KafkaError(code, f"another consumer has the group.instance.id {settings.instance_id!r}: {error.message}")
    if code is ErrorCode.UNSUPPORTED_ASSIGNOR:
        return KafkaError(code, f"group.remote.assignor={settings.remote_assignor}: {error.message}")
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return KafkaError(code, f"group.protocol=consumer: {error.message}")
    return error


def _no_error(_: object) -> None:
    """The member has left, whatever the coordinator says."""
