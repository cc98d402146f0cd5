"""The classic groups of one partition of __consumer_offsets: every command, and what time does to them.

Answers that wait (a join until all are here, a sync until the leader has a plan) are kept with the member they are
for, and given through the function that came with the request. A generation's plan is answered once its record is in
the log; where the log does not take it, the members are told to look for their coordinator again, and the rebalance
begins anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.groupcoord.classic.group import (
    ClassicGroup,
    GroupState,
    Joined,
    JoinReply,
    Member,
    Protocols,
    Synced,
    SyncReply,
)
from raylog.groupcoord.classic.subscription import CONSUMER, subscribed_topics
from raylog.groupcoord.records import GroupCommitted, GroupDeleted, GroupRecord

CLIENT_ID_IN_MEMBER_ID_MAX = 200
"""Characters of the client's id that a member's id begins with: they are for people to read."""


class GroupLog(Protocol):
    """Where the groups' records go: an EventLog over the partition, or a test's list."""

    def commit(self, outcome: Outcome[None, GroupRecord], *, now_ms: int) -> None:
        """Append and replay. Raises KafkaError, and has changed nothing then."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """group.* of the broker's configuration."""

    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_rebalance_delay_ms: int
    members_max: int


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Who wants to be a member, and what it can do.

    `known_id_wanted`: the id is given first, and joined with (KIP-394). `may_skip`: the client understands
    `skip_assignment` (KIP-814).
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
    known_id_wanted: bool
    may_skip: bool


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """Who asks for its part; the leader brings everybody's. Type and name of the protocol are None where not said."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class ClassicGroups:
    """All that one partition keeps. `replay` is called for each record, also for those this object has made."""

    def __init__(self, limits: Callable[[], GroupLimits], *, new_id: Callable[[], str]) -> None:
        """`new_id` gives what nobody can guess."""
        self.groups: dict[str, ClassicGroup] = {}
        self.log: GroupLog | None = None
        """To be set before the first command."""
        self._limits = limits
        self._new_id = new_id
        self._due: list[tuple[int, str]] = []

    # --- commands

    def join(self, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        """`reply` is called once, now or later."""
        try:
            self._join(request, reply, now)
        except KafkaError as error:
            reply(Joined(error.code, request.member_id))

    def sync(self, request: SyncRequest, reply: SyncReply, now: Now) -> None:
        """`reply` is called once, now or later."""
        try:
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
        except KafkaError as error:
            reply(Synced(error.code))
            return
        group.unsynced.discard(member.member_id)
        if group.state is GroupState.STABLE:
            member.heard(now.monotonic_ms)
            reply(group.synced(member))
            return
        member.answer_sync(Synced(ErrorCode.REBALANCE_IN_PROGRESS))  # of an earlier try, which nobody reads any more
        member.sync_reply = reply
        if member.member_id == group.leader:
            self._complete(group, request.assignments, now)
        self._look_again(group)

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None, now: Now
    ) -> ErrorCode:
        try:
            group = self._group(group_id)
            if group.state is GroupState.EMPTY:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            member = group.check_member(member_id, group_instance_id)
            group.check_generation(generation_id)
        except KafkaError as error:
            return error.code
        member.heard(now.monotonic_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, group_id: str, member_id: str, group_instance_id: str | None, now: Now) -> ErrorCode:
        """One member goes; a static one may be named by its instance alone."""
        try:
            group = self._group(group_id)
            if member_id in group.pending:
                del group.pending[member_id]
                self._try_complete_join(group, now)
                return ErrorCode.NONE
            if group_instance_id is not None and not member_id:
                member_id = group.static.get(group_instance_id, "")
            member = group.check_member(member_id, group_instance_id)
        except KafkaError as error:
            return error.code
        self._remove(group, member, now)
        return ErrorCode.NONE

    def check_commit(
        self, group_id: str, generation_id: int, member_id: str, group_instance_id: str | None, now: Now
    ) -> None:
        """Whether offsets may be committed so. Raises KafkaError with the code OffsetCommit answers."""
        group = self.groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            if member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            return
        if generation_id < 0 and group.state is GroupState.EMPTY:
            return
        if generation_id < 0 and not member_id and group_instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)  # it has members, who speak for it
        member = group.check_member(member_id, group_instance_id)
        group.check_generation(generation_id)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        member.heard(now.monotonic_ms)

    def subscribed_topics(self, group_id: str) -> set[str] | None:
        """What the members of a consumer group want to read: nothing, where it has none; None where nobody can say."""
        group = self.groups.get(group_id)
        if group is None or not group.members:
            return set()
        if group.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in group.members.values():
            wanted = [subscribed_topics(metadata) for _, metadata in member.protocols]
            if None in wanted:
                return None
            topics.update(*(each for each in wanted if each is not None))
        return topics

    def delete(self, group_id: str) -> list[GroupRecord]:
        """The records that forget an empty group. Raises KafkaError(NON_EMPTY_GROUP)."""
        group = self.groups.get(group_id)
        if group is None:
            return []
        if group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        return [GroupDeleted(group_id)]

    # --- records

    def replay(self, record: GroupCommitted | GroupDeleted, *, now_ms: int) -> None:
        """Make it true. A group that is in the middle of this generation is told by `sync`; one that is not is taken
        over from the record."""
        if isinstance(record, GroupDeleted):
            self.groups.pop(record.group, None)
            return
        group = self.groups.get(record.group)
        if (
            group is not None
            and group.generation_id == record.generation_id
            and group.members.keys() == {member.member_id for member in record.members}
        ):
            return
        self.groups[record.group] = ClassicGroup.from_record(record, now_ms=now_ms)
        self._look_again(self.groups[record.group])

    # --- time

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, at the earliest (monotonic)."""
        return self._due[0][0] if self._due else None

    def tick(self, now: Now) -> None:
        """Members that have been silent for too long are put out; rebalances go on without those who are missing."""
        while self._due and self._due[0][0] <= now.monotonic_ms:
            _, group_id = heapq.heappop(self._due)
            group = self.groups.get(group_id)
            if group is not None:
                self._on_time(group, now)
                self._look_again(group)

    def _on_time(self, group: ClassicGroup, now: Now) -> None:
        ms = now.monotonic_ms
        lapsed = [member_id for member_id, lapses_ms in group.pending.items() if lapses_ms <= ms]
        for member_id in lapsed:
            del group.pending[member_id]
        for member in list(group.members.values()):
            if not member.waits and member.expires_ms <= ms:
                self._remove(group, member, now)
        if group.sync_deadline_ms is not None and group.sync_deadline_ms <= ms:
            group.sync_deadline_ms = None
            for member_id in list(group.unsynced):
                self._remove(group, group.members[member_id], now)
        if group.join_deadline_ms is not None and group.join_deadline_ms <= ms:
            self._join_time_is_up(group, now)
        elif lapsed:
            self._try_complete_join(group, now)

    def _look_again(self, group: ClassicGroup) -> None:
        """Remember when. Deadlines that have moved since are found out about when their old time comes."""
        due_ms = min(group.deadlines(), default=None)
        if due_ms is not None:
            heapq.heappush(self._due, (due_ms, group.group_id))
            if len(self._due) > 64 and len(self._due) > 8 * len(self.groups):
                self._due = [(ms, group_id) for group_id, ms in self._earliest().items()]
                heapq.heapify(self._due)

    def _earliest(self) -> dict[str, int]:
        earliest = {group_id: min(group.deadlines(), default=None) for group_id, group in self.groups.items()}
        return {group_id: ms for group_id, ms in earliest.items() if ms is not None}

    # --- joining

    def _join(self, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        limits = self._limits()
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if not request.protocol_type or not request.protocols:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, state_since_ms=now.wall_ms)
        elif not group.supports(request.protocol_type, request.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            self._join_again(group, request, reply, now)
        else:
            self._join_anew(group, request, reply, now)
        self._look_again(group)

    def _join_anew(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        instance = request.group_instance_id
        owner = group.static.get(instance) if instance is not None else None
        if owner is None and len(group.members) + len(group.pending) >= self._limits().members_max:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        prefix = request.group_instance_id or request.client_id[:CLIENT_ID_IN_MEMBER_ID_MAX]
        member_id = f"{prefix}-{self._new_id()}"
        if owner is not None:
            self._take_over(group, group.members[owner], member_id, request, reply, now)
        elif request.known_id_wanted and instance is None:
            group.pending[member_id] = now.monotonic_ms + request.session_timeout_ms
            reply(Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, member_id, request, reply, now)

    def _join_again(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply, now: Now) -> None:
        """By the id that was given: for the first time, or because the group rebalances, or wants to."""
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._add(group, request.member_id, request, reply, now)
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        unchanged = member.protocols == request.protocols
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            member.heard(now.monotonic_ms)  # the answer to its join was lost: it is told once more
            reply(group.joined(member))
        elif group.state is GroupState.STABLE and unchanged and member.member_id != group.leader:
            member.heard(now.monotonic_ms)
            reply(group.joined(member))
        else:
            self._update(member, request)
            self._rebalance_with(group, member, reply, now)

    def _take_over(
        self, group: ClassicGroup, member: Member, member_id: str, request: JoinRequest, reply: JoinReply, now: Now
    ) -> None:
        """A static member comes back as another process: within a stable generation nobody else need notice."""
        leader_before, protocols_before = group.leader, member.protocols
        group.replace(member, member_id)
        self._update(member, request)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.heard(now.monotonic_ms)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            self._rebalance_with(group, member, reply, now)
            return
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        try:
            self._commit([group.committed(assignments)], now)
        except KafkaError as error:
            member.protocols = protocols_before
            reply(Joined(_lost(error), request.member_id))
            return
        joined = group.joined(member, skip_assignment=request.may_skip)
        if not request.may_skip and member_id == group.leader:
            # It must not plan anew: the others have their parts. So it is shown the process it replaces as leader.
            joined = Joined(
                ErrorCode.NONE,
                member_id,
                joined.generation_id,
                joined.protocol_type,
                joined.protocol_name,
                leader_before or "",
            )
        reply(joined)

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
            now.monotonic_ms + request.session_timeout_ms,
        )
        group.add(member)
        group.newly_joined = True
        self._rebalance_with(group, member, reply, now)

    @staticmethod
    def _update(member: Member, request: JoinRequest) -> None:
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    # --- rebalancing

    def _rebalance_with(self, group: ClassicGroup, member: Member, reply: JoinReply, now: Now) -> None:
        """The member has asked to join: it waits, and so does the group until all have."""
        member.join_reply = reply  # of an earlier try nobody reads the answer any more
        self._prepare(group, now)
        self._try_complete_join(group, now)

    def _prepare(self, group: ClassicGroup, now: Now) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            return
        was_empty = group.state is GroupState.EMPTY
        if group.state is GroupState.COMPLETING_REBALANCE:
            group.interrupt_sync()
        group.enter(GroupState.PREPARING_REBALANCE, now.wall_ms)
        delay_ms = self._limits().initial_rebalance_delay_ms
        group.waits_for_more = was_empty and delay_ms > 0
        if group.waits_for_more:
            group.newly_joined = False
            group.initial_wait_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.join_deadline_ms = now.monotonic_ms + delay_ms
        else:
            group.join_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms

    def _try_complete_join(self, group: ClassicGroup, now: Now) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and not group.waits_for_more and group.all_joined():
            self._complete_join(group, now)

    def _join_time_is_up(self, group: ClassicGroup, now: Now) -> None:
        if group.waits_for_more and group.newly_joined and group.initial_wait_ms > 0:
            delay_ms = min(self._limits().initial_rebalance_delay_ms, group.initial_wait_ms)
            group.newly_joined = False
            group.initial_wait_ms -= delay_ms
            group.join_deadline_ms = now.monotonic_ms + delay_ms
        else:
            self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: Now) -> None:
        """On to the next generation, with those who have joined, and static members in any case."""
        group.waits_for_more = False
        for member in list(group.members.values()):
            if member.join_reply is None and not member.is_static:
                group.remove(member)
        if group.members and not group.elect_joined_leader():
            group.join_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
            return
        group.join_deadline_ms = None
        group.generation_id += 1
        if not group.members:
            self._become_empty(group, now)
            return
        group.protocol_name = group.select_protocol()
        group.enter(GroupState.COMPLETING_REBALANCE, now.wall_ms)
        group.unsynced = set(group.members)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        for member in list(group.members.values()):
            member.heard(now.monotonic_ms)
            member.answer_join(group.joined(member))

    def _become_empty(self, group: ClassicGroup, now: Now) -> None:
        group.protocol_name = group.leader = None
        group.enter(GroupState.EMPTY, now.wall_ms)
        try:
            self._commit([group.committed({})], now)
        except KafkaError:  # it is found out again by whoever loads the group: its members will be silent
            pass

    def _complete(self, group: ClassicGroup, assignments: Mapping[str, bytes], now: Now) -> None:
        """The leader has a plan: once it lasts, everybody gets its part."""
        plan = {member_id: bytes(assignments.get(member_id, b"")) for member_id in group.members}
        try:
            self._commit([group.committed(plan)], now)
        except KafkaError as error:
            for member in group.members.values():
                member.answer_sync(Synced(_lost(error)))
            self._prepare(group, now)
            return
        group.enter(GroupState.STABLE, now.wall_ms)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms if group.unsynced else None
        for member in list(group.members.values()):
            member.assignment = plan[member.member_id]
            if member.sync_reply is not None:
                member.heard(now.monotonic_ms)
                member.answer_sync(group.synced(member))

    def _remove(self, group: ClassicGroup, member: Member, now: Now) -> None:
        group.remove(member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(group, now)
        self._try_complete_join(group, now)
        self._look_again(group)

    def _commit(self, records: Iterable[GroupRecord], now: Now) -> None:
        assert self.log is not None
        self.log.commit(Outcome(None, list(records)), now_ms=now.wall_ms)

    def _group(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group


def _lost(error: KafkaError) -> ErrorCode:
    """What a member is told of a log that does not take its group's record: to look for its coordinator again."""
    if error.code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
