"""The classic groups of one partition of __consumer_offsets: commands and timeouts.

Pending responses (a join until all members have joined, a sync until the leader has sent the assignment) are kept with
their member and sent once, through the function that came with the request. Assignments are sent once the record of the
generation is appended; if the append fails the members get an error and rebalance again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from raylog.config.groups import GroupLimits
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.classic.group import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    ClassicGroup,
    GroupState,
    Joined,
    JoinReply,
    Member,
    Protocols,
    Synced,
    SyncReply,
)
from raylog.groupcoord.classic.subscription import CONSUMER
from raylog.groupcoord.records import STRING_BYTES_MAX, GroupCommitted, GroupDeleted, GroupRecord

PREFIX_OF_MEMBER_ID_MAX = 200
"""A member id begins with up to this many characters of the client or instance id, for readability."""
POSTPONED_JOIN_MS_MIN = 1000
"""The shortest delay of a rebalance if the only remaining members are static ones that have not joined."""

Append = Callable[[Sequence[GroupRecord], Now], None]
"""Append records to the log and replay them. Raises KafkaError with the client's error code; nothing changes then."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join a group.

    `require_known_member_id`: the client gets a member id first and joins with it (KIP-394).
    `supports_skip_assignment`: the client supports `skip_assignment` (KIP-814).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    require_known_member_id: bool
    supports_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member requests its assignment; the leader sends all of them. Protocol type and name are None if not given."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class ClassicGroups:
    """All groups of one partition. Lifecycle: `replay` for each record of the log, `loaded` once, commands and `tick`;
    `unload` when another coordinator takes over."""

    def __init__(
        self,
        limits: Callable[[], GroupLimits],
        *,
        append: Append,
        new_id: Callable[[], str],
        on_rebalance: Callable[[], None] = lambda: None,
    ) -> None:
        """`new_id` returns an id that cannot be guessed; `on_rebalance` is called for each generation that begins."""
        self.groups: dict[str, ClassicGroup] = {}
        self._limits = limits
        self._append = append
        self._new_id = new_id
        self._on_rebalance = on_rebalance
        self._due: list[tuple[int, str]] = []
        self._loading = True

    # --- commands

    def join(self, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        """`reply` is called once, now or later."""
        try:
            self._join(request, reply, now)
        except KafkaError as error:
            reply(Joined(error.code, request.member_id))
        self._update_deadline(request.group_id, now)

    def sync(self, request: SyncRequest, reply: SyncReply, now: Now) -> None:
        """`reply` is called once, now or later."""
        try:
            self._sync(request, reply, now)
        except KafkaError as error:
            reply(Synced(error.code))
        self._update_deadline(request.group_id, now)

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None, now: Now
    ) -> ErrorCode:
        try:
            group = self._group(group_id)
            member = group.check_member(member_id, group_instance_id)
            group.check_generation(generation_id)
        except KafkaError as error:
            return error.code
        member.renew_session(now.monotonic_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, group_id: str, leaving: Iterable[tuple[str, str | None]], now: Now) -> list[ErrorCode]:
        """Remove members. Returns an error code for each (member id, instance id)."""
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in leaving]
        count_before = len(group.members)
        codes = [_leave(group, member_id, instance_id) for member_id, instance_id in leaving]
        if len(group.members) < count_before:
            self._continue_rebalance(group, now)
        self._update_deadline(group_id, now)
        return codes

    def check_commit(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        now: Now,
        *,
        in_transaction: bool = False,
    ) -> None:
        """Check that the offsets may be committed. Raises KafkaError with the code that OffsetCommit returns."""
        group = self.groups.get(group_id)
        if generation_id < 0 and (group is None or group.state is GroupState.EMPTY):
            return  # an admin client, or a consumer that uses assign()
        if in_transaction and generation_id < 0 and not member_id and group_instance_id is None:
            return  # before KIP-447 the producer was fenced in place of the member
        if group is None or (generation_id < 0 and not member_id and group_instance_id is None):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)  # only members may commit for a group that has members
        member = group.check_member(member_id, group_instance_id)
        group.check_generation(generation_id)
        if group.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        member.renew_session(now.monotonic_ms)

    def check_delete(self, group_id: str) -> None:
        """Check that the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""
        group = self.groups.get(group_id)
        if group is not None and group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_offset_delete(self, group_id: str) -> None:
        """Check that offsets of topics without a subscription may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""
        group = self.groups.get(group_id)
        if group is not None and group.protocol_type != CONSUMER:
            self.check_delete(group_id)

    # --- groups that change their protocol

    def replaced(self, group: ClassicGroup) -> None:
        """The group has become a consumer group: its members join that."""
        for member in group.members.values():
            member.answer_join(Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            member.answer_sync(Synced(ErrorCode.REBALANCE_IN_PROGRESS))

    def adopt(self, group: ClassicGroup, former: Sequence[GroupRecord], now: Now) -> None:
        """A consumer group has become this one: append the record after those that delete it, and rebalance.

        Raises KafkaError, and has not adopted it then.
        """
        self.groups[group.group_id] = group
        assignments = {member.member_id: member.assignment for member in group.members.values()}
        try:
            self._append([*former, group.committed(assignments)], now)
        except KafkaError:
            del self.groups[group.group_id]
            raise
        for member in group.members.values():
            member.renew_session(now.monotonic_ms)
        self._prepare(group, now)
        self._update_deadline(group.group_id, now)

    # --- records

    def replay(self, record: GroupCommitted | GroupDeleted) -> None:
        """Apply the record. A generation created by this coordinator is in memory already, with more details."""
        if isinstance(record, GroupDeleted):
            self.groups.pop(record.group, None)
        elif self._loading:
            self.groups[record.group] = ClassicGroup.from_record(record)
        else:
            self.groups[record.group].is_recorded = True

    def loaded(self, now: Now) -> None:
        """The log is replayed: start a session for every member."""
        self._loading = False
        for group in list(self.groups.values()):
            for member in group.members.values():
                member.renew_session(now.monotonic_ms)
            if len(group.members) > self._limits().members_max:
                self._prepare(group, now)
            self._update_deadline(group.group_id, now)

    def unload(self) -> None:
        """Another coordinator has taken over: answer all pending requests with NOT_COORDINATOR."""
        for group in self.groups.values():
            for member in group.members.values():
                member.answer_join(Joined(ErrorCode.NOT_COORDINATOR, member.member_id))
                member.answer_sync(Synced(ErrorCode.NOT_COORDINATOR))

    # --- time

    def next_deadline_ms(self) -> int | None:
        """The time of the next `tick` (monotonic); None if there is no deadline."""
        return self._due[0][0] if self._due else None

    def tick(self, now: Now) -> None:
        """Remove members whose session has expired; continue rebalances without members that did not join in time."""
        while self._due and self._due[0][0] <= now.monotonic_ms:
            due_ms, group_id = heapq.heappop(self._due)
            group = self.groups.get(group_id)
            if group is not None and group.due_ms == due_ms:
                group.due_ms = None
                self._apply_timeouts(group, now)
                self._update_deadline(group_id, now)

    def _apply_timeouts(self, group: ClassicGroup, now: Now) -> None:
        ms = now.monotonic_ms
        for member_id in [member_id for member_id, expires_ms in group.pending.items() if expires_ms <= ms]:
            del group.pending[member_id]
        gone = [member for member in group.members.values() if member.can_expire and member.expires_ms <= ms]
        if group.sync_deadline_ms is not None and group.sync_deadline_ms <= ms:
            gone += [group.members[member_id] for member_id in group.unsynced if group.members[member_id] not in gone]
            group.cancel_sync_timeout()
        for member in gone:
            group.remove(member)
        if gone:
            self._continue_rebalance(group, now)
        if group.join_deadline_ms is not None and group.join_deadline_ms <= ms:
            self._join_deadline_passed(group, now)

    def _update_deadline(self, group_id: str, now: Now) -> None:
        """After every change: complete the join if possible, remove an unused group, schedule the next deadline.

        A deadline that was extended stays scheduled at its old time and is rescheduled then.
        """
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_delay and group.all_joined():
            self._complete_join(group, now)
        if group.has_no_members:
            del self.groups[group_id]
            return
        due_ms = group.earliest_deadline_ms(now.monotonic_ms)
        if due_ms is not None and (group.due_ms is None or due_ms < group.due_ms):
            group.due_ms = due_ms
            heapq.heappush(self._due, (due_ms, group_id))

    # --- joining

    def _join(self, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        check_texts(request)
        limits = self._limits()
        if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id, state_since_ms=now.wall_ms)
        if not self._has_room(group, request):
            refused = group.members.get(request.member_id)
            if refused is not None:
                group.remove(refused)
            group.pending.pop(request.member_id, None)
            reply(Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
            return
        if not group.supports(request.protocol_type, request.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self.groups[request.group_id] = group
        if request.member_id:
            self._join_again(group, request, reply, now)
        else:
            self._join_anew(group, request, reply, now)

    def _has_room(self, group: ClassicGroup, request: JoinRequest) -> bool:
        """Whether group.max.size allows the member. If it was lowered, the first members to rejoin stay.

        Unlike in Kafka, a process that replaces a static member does not count: static members of a full group may
        restart.
        """
        known_id = request.member_id or group.static.get(request.group_instance_id or "", "")
        member = group.members.get(known_id)
        members_max = self._limits().members_max
        if group.state is GroupState.EMPTY or len(group.members) < members_max:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            joined = sum(each.join_reply is not None for each in group.members.values())
            return joined < members_max or (member is not None and member.join_reply is not None)
        return member is not None

    def _join_anew(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        instance = request.group_instance_id
        owner = group.static.get(instance) if instance is not None else None
        prefix = request.client_id if instance is None else instance
        member_id = f"{prefix[:PREFIX_OF_MEMBER_ID_MAX]}-{self._new_id()}"
        if owner is not None:
            self._take_over(group, group.members[owner], member_id, request, reply, now)
        elif request.require_known_member_id and instance is None:
            group.await_join(member_id, session_timeout_ms=request.session_timeout_ms, now_ms=now.monotonic_ms)
            reply(Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, member_id, request, reply, now)

    def _join_again(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        """A join with a known member id: the first one after the id was assigned, or a rejoin."""
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._add(group, request.member_id, request, reply, now)
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        unchanged = member.protocols == request.protocols
        if (group.state is GroupState.COMPLETING_REBALANCE and unchanged) or (
            group.state is GroupState.STABLE and unchanged and member.member_id != group.leader
        ):
            member.renew_session(now.monotonic_ms)  # the response may have been lost: it is sent again
            reply(group.joined(member))
            return
        _update(group, member, request)
        self._wait_for_join(group, member, reply, now)

    def _take_over(
        self, group: ClassicGroup, member: Member, member_id: str, request: JoinRequest, reply: JoinReply, now: Now
    ) -> None:
        """A static member was restarted: a stable generation continues without a rebalance."""
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        client_before = (member.client_id, member.client_host)
        old_id, leader_before = member.member_id, group.leader
        group.replace(member, member_id)
        _update(group, member, request)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.renew_session(now.monotonic_ms)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            self._wait_for_join(group, member, reply, now)
            return
        try:
            self._append([group.committed({each.member_id: each.assignment for each in group.members.values()})], now)
        except KafkaError as error:
            group.replace(member, old_id)
            protocols, rebalance_timeout_ms, session_timeout_ms = before
            group.update(
                member, protocols, rebalance_timeout_ms=rebalance_timeout_ms, session_timeout_ms=session_timeout_ms
            )
            member.client_id, member.client_host = client_before
            member.renew_session(now.monotonic_ms)
            reply(Joined(error.code, ""))
            return
        group.update_subscriptions()
        if request.supports_skip_assignment or member_id != group.leader:
            reply(group.joined(member, skip_assignment=request.supports_skip_assignment))
            return
        # It must not assign again: the others have their assignments. So the response names the replaced id as leader.
        reply(
            Joined(
                ErrorCode.NONE,
                member_id,
                group.generation_id,
                group.protocol_type,
                group.protocol_name,
                leader_before or "",
            )
        )

    def _add(self, group: ClassicGroup, member_id: str, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        if not group.members:
            group.protocol_type = request.protocol_type
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
            is_new=True,
        )
        group.add(member)
        group.newly_joined = True
        self._wait_for_join(group, member, reply, now)

    # --- rebalancing

    def _wait_for_join(self, group: ClassicGroup, member: Member, reply: JoinReply, now: Now) -> None:
        """The member's join waits until all members have joined."""
        member.answer_join(Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))  # an earlier attempt
        member.join_reply = reply
        self._prepare(group, now)

    def _prepare(self, group: ClassicGroup, now: Now) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            return
        was_empty = group.state is GroupState.EMPTY
        if group.state is GroupState.COMPLETING_REBALANCE:
            group.interrupt_sync(ErrorCode.REBALANCE_IN_PROGRESS, now.monotonic_ms)
        group.cancel_sync_timeout()
        group.enter(GroupState.PREPARING_REBALANCE, now.wall_ms)
        delay_ms = self._limits().initial_rebalance_delay_ms
        group.is_initial_delay = was_empty and delay_ms > 0
        if group.is_initial_delay:
            group.newly_joined = False
            group.initial_wait_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.join_deadline_ms = now.monotonic_ms + delay_ms
        else:
            group.join_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms

    def _continue_rebalance(self, group: ClassicGroup, now: Now) -> None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(group, now)

    def _join_deadline_passed(self, group: ClassicGroup, now: Now) -> None:
        if group.is_initial_delay and group.newly_joined and group.initial_wait_ms > 0:
            delay_ms = min(self._limits().initial_rebalance_delay_ms, group.initial_wait_ms)
            group.newly_joined = False
            group.initial_wait_ms -= delay_ms
            group.join_deadline_ms = now.monotonic_ms + delay_ms
        else:
            self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: Now) -> None:
        """Begin the next generation with the members that have joined, and all static members."""
        group.is_initial_delay = False
        for member in list(group.members.values()):
            if member.join_reply is None and not member.is_static:
                group.remove(member)
        if group.members and not group.elect_joined_leader():
            group.join_deadline_ms = now.monotonic_ms + max(group.rebalance_timeout_ms, POSTPONED_JOIN_MS_MIN)
            return
        group.join_deadline_ms = None
        group.generation_id += 1
        if not group.members:
            self._become_empty(group, now)
            return
        self._on_rebalance()
        group.protocol_name = group.select_protocol()
        group.update_subscriptions()
        group.enter(GroupState.COMPLETING_REBALANCE, now.wall_ms)
        group.unsynced = set(group.members)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        for member in group.members.values():
            member.is_new = False
            member.renew_session(now.monotonic_ms)
            member.answer_join(group.joined(member))

    def _become_empty(self, group: ClassicGroup, now: Now) -> None:
        group.protocol_name = group.leader = None
        group.update_subscriptions()
        group.enter(GroupState.EMPTY, now.wall_ms)
        try:
            self._append([group.committed({})], now)
        except KafkaError:  # a coordinator that loads the group expires these members again
            pass

    # --- syncing

    def _sync(self, request: SyncRequest, reply: SyncReply, now: Now) -> None:
        group = self._group(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        for said, is_so in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if said is not None and said != is_so:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.cancel_sync_timeout()
        if group.state is GroupState.STABLE:
            member.renew_session(now.monotonic_ms)
            reply(group.synced(member))
            return
        member.answer_sync(Synced(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier attempt
        member.sync_reply = reply
        if member.member_id == group.leader:
            self._complete(group, request.assignments, now)

    def _complete(self, group: ClassicGroup, assignments: Mapping[str, bytes], now: Now) -> None:
        """The leader sent the assignment: write the generation, then send each member its assignment."""
        plan = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        try:
            self._append([group.committed(plan)], now)
        except KafkaError as error:
            group.interrupt_sync(error.code, now.monotonic_ms)
            self._prepare(group, now)
            return
        group.enter(GroupState.STABLE, now.wall_ms)
        for member in group.members.values():
            member.assignment = plan[member.member_id]
            if member.sync_reply is not None:
                member.renew_session(now.monotonic_ms)
                member.answer_sync(group.synced(member))

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group


def _leave(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Remove one member; a static member may be identified by its instance id alone."""
    if group.pending.pop(member_id, None) is not None:
        return ErrorCode.NONE
    if group_instance_id is not None and not member_id:
        member_id = group.static.get(group_instance_id, "")
    try:
        group.remove(group.check_member(member_id, group_instance_id))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _update(group: ClassicGroup, member: Member, request: JoinRequest) -> None:
    group.update(
        member,
        request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )


def check_texts(request: JoinRequest) -> None:
    """Check string lengths: records and old response versions cannot hold longer ones. Raises INVALID_REQUEST."""
    texts = [request.group_id, request.client_id, request.client_host, request.protocol_type]
    texts += [request.group_instance_id or "", *(name for name, _ in request.protocols)]
    if any(len(text.encode()) > STRING_BYTES_MAX for text in texts):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
