"""Members of the classic protocol in groups of the consumer protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.
LeaveGroup removes members of the consumer protocol as well, for administrators.

The coordinator assigns for them as well. A member that has to take a step towards its target gets REBALANCE_IN_PROGRESS
for its heartbeats, joins again, saying what it owns, and gets by SyncGroup what it may have now. Its member epoch is
its generation. A member with an eager assignor owns nothing when it joins, so that it needs one step.
Source: KIP-848, "Upgrade and downgrade"; for what it leaves open, the behaviour of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from raylog.config.groups import GroupLimits
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.classic.group import Joined, Synced
from raylog.groupcoord.classic.groups import PREFIX_OF_MEMBER_ID_MAX, JoinRequest, SyncRequest, check_texts
from raylog.groupcoord.classic.subscription import CONSUMER
from raylog.groupcoord.consumer.conversion import encoded_assignment, partitions_of
from raylog.groupcoord.consumer.draft import Draft
from raylog.groupcoord.consumer.group import ConsumerGroup, Member
from raylog.groupcoord.consumer.groups import ConsumerGroups
from raylog.groupcoord.consumer.member_records import drop_regexes, replace_static, subscription_of
from raylog.groupcoord.consumer.records import ClassicProtocols, MemberState
from raylog.groupcoord.deadlines import MemberKey
from raylog.protocol import consumer_protocol
from raylog.protocol.consumer_protocol import ConsumerProtocolSubscription

GIVEN_MAX: Final = 10_000
"""Member ids that were handed out and not used yet. A member that joins with an older one must ask for a new id."""


class ClassicMembers:
    """Of the consumer groups of one partition of __consumer_offsets."""

    def __init__(self, consumer: ConsumerGroups, limits: Callable[[], GroupLimits]) -> None:
        self._consumer = consumer
        self._limits = limits
        self._given: dict[MemberKey, None] = {}
        """Ids that were given to members which have not joined with them yet, the oldest first."""

    def join(self, request: JoinRequest, now: Now) -> Joined:
        """The response, at once: nobody waits for other members."""
        try:
            return self._join(request, now)
        except KafkaError as error:
            return Joined(error.code, request.member_id)

    def sync(self, request: SyncRequest, now: Now) -> Synced:
        try:
            group = self._consumer.groups[request.group_id]
            member, said = _member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            protocol_name = said.protocols[0][0]
            for name, is_so in ((request.protocol_type, CONSUMER), (request.protocol_name, protocol_name)):
                if name is not None and name != is_so:
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(group, member, now)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return Synced(error.code)
        key = (group.group_id, member.member_id)
        self._consumer.rejoins.discard(key)
        self._consumer.sessions.set(key, now.monotonic_ms + said.session_timeout_ms)
        assignment = encoded_assignment(member, member.assigned, self._consumer.topics)
        return Synced(ErrorCode.NONE, CONSUMER, protocol_name, assignment)

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None, now: Now
    ) -> ErrorCode:
        group = self._consumer.groups[group_id]
        try:
            member, said = _member(group, member_id, group_instance_id)
            _check_generation(member, generation_id)
        except KafkaError as error:
            return error.code
        self._consumer.sessions.set((group_id, member_id), now.monotonic_ms + said.session_timeout_ms)
        waits = member.state is MemberState.UNRELEASED_PARTITIONS
        if (
            member.member_epoch < group.group_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (waits and group.is_released(member))
        ):
            self._expect_join(group, member, now)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, group_id: str, leaving: Iterable[tuple[str, str | None]], now: Now) -> list[ErrorCode]:
        """Remove members of either protocol. Returns an error code for each (member id, instance id).

        Administrators remove members of the consumer protocol by this request too.
        """
        group = self._consumer.groups[group_id]
        codes: list[ErrorCode] = []
        gone: dict[str, None] = {}
        for member_id, instance_id in leaving:
            if instance_id is not None and not member_id:
                member_id = group.static.get(instance_id, "")
            try:
                gone[_any_member(group, member_id, instance_id).member_id] = None
                codes.append(ErrorCode.NONE)
            except KafkaError as error:
                codes.append(error.code)
        try:
            self._consumer.remove_members(group_id, list(gone), now)
        except KafkaError as error:
            return [code or error.code for code in codes]
        return codes

    # --- internals

    def _join(self, request: JoinRequest, now: Now) -> Joined:
        """Raises KafkaError."""
        check_texts(request)
        limits, consumer = self._limits(), self._consumer
        if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        draft = Draft(consumer.groups[request.group_id])
        if not _supports(draft.group, request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        said = consumer_protocol.decode(ConsumerProtocolSubscription, request.protocols[0][1])
        member_id = request.member_id
        if not member_id:
            prefix = request.group_instance_id or request.client_id
            member_id = f"{prefix[:PREFIX_OF_MEMBER_ID_MAX]}-{consumer.new_id()}"
            if request.require_known_member_id and request.group_instance_id is None:
                self._give(request.group_id, member_id)
                return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        elif not self._may_join(draft.group, request):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._take_over(draft, request, member_id)
        if member_id not in draft.group.members:
            consumer.check_room(draft.group)
        before = draft.group.members.get(member_id)
        member = replace(
            before or Member(member_id),
            instance_id=request.group_instance_id,
            rack_id=said.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=tuple(sorted(set(said.topics))),
            topic_regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicProtocols(request.session_timeout_ms, request.protocols),
        )
        if before != member:
            draft.add(subscription_of(request.group_id, member))
            drop_regexes(draft, draft.group.used_regexes())
        wants_other = before is None or (before.topic_names, before.topic_regex) != (member.topic_names, None)
        consumer.bump(draft, always=wants_other)
        if draft.group.group_epoch > draft.group.assignment_epoch:
            consumer.assign(draft)
        consumer.reconcile(draft, member_id, partitions_of(said, consumer.topics))
        consumer.commit_or_downgrade(draft, now)
        key = (request.group_id, member_id)
        self._given.pop(key, None)
        if request.group_id in consumer.groups:  # else it is a classic group again
            consumer.sessions.set(key, now.monotonic_ms + request.session_timeout_ms)
            consumer.rejoins.set(key, now.monotonic_ms + request.rebalance_timeout_ms)
        epoch = draft.group.members[member_id].member_epoch
        return Joined(ErrorCode.NONE, member_id, epoch, CONSUMER, request.protocols[0][0])

    def _give(self, group_id: str, member_id: str) -> None:
        self._given[group_id, member_id] = None
        if len(self._given) > GIVEN_MAX:
            del self._given[next(iter(self._given))]

    def _may_join(self, group: ConsumerGroup, request: JoinRequest) -> bool:
        """Not a member that was removed: it must first learn that it has lost its partitions, which others may have."""
        return (
            request.member_id in group.members
            or request.group_instance_id is not None
            or (request.group_id, request.member_id) in self._given
        )

    @staticmethod
    def _take_over(draft: Draft, request: JoinRequest, member_id: str) -> None:
        """A static member that was started again replaces the former one, whichever protocol that used.

        Raises KafkaError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if request.group_instance_id is None:
            return
        owner = draft.group.static.get(request.group_instance_id)
        if request.member_id and owner is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_id and owner != request.member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if owner is not None and owner != member_id:
            replace_static(draft, draft.group.members[owner], member_id)

    def _expect_join(self, group: ConsumerGroup, member: Member, now: Now) -> None:
        """The member has to join again within its rebalance timeout."""
        key = (group.group_id, member.member_id)
        if key not in self._consumer.rejoins:
            self._consumer.rejoins.set(key, now.monotonic_ms + member.rebalance_timeout_ms)


def _supports(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether the member is a consumer, and has an assignor in common with all other classic members."""
    if request.protocol_type != CONSUMER or not request.protocols:
        return False
    names = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != request.member_id:
            names &= {name for name, _ in member.classic.protocols}
    return bool(names)


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[Member, ClassicProtocols]:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, also for a member of the consumer protocol, or FENCED_INSTANCE_ID."""
    member = _any_member(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


def _any_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """Of either protocol. Raises KafkaError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if instance_id is not None:
        owner = group.static.get(instance_id)
        if owner is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if owner != member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _check_generation(member: Member, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
