"""One classic group: its members, its generation and its assignment.

    Empty --join--> PreparingRebalance --all joined, or timeout--> CompletingRebalance --leader's assignment--> Stable
      ^                    ^  |                                             |                                     |
      |                    |  +--no members--> Empty                        |                                     |
      +--last one leaves---+---------- a member joins, leaves or times out -+-------------------------------------+

Each generation is written as a `GroupCommitted` record. Joins and syncs in progress are soft state, lost when the
coordinator moves, as in Kafka. The rules are those of Apache Kafka's ClassicGroup (KIP-62, 345, 394, 559, 814).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.classic.subscription import CONSUMER, subscribed_topics
from raylog.groupcoord.records import CommittedMember, GroupCommitted

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each assignor that a member supports, in order of preference."""


class GroupState(Enum):
    """The state names of DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Joined:
    """The response to JoinGroup. `members` is for the leader only: (member id, instance id, metadata)."""

    error_code: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """The response to SyncGroup."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[Joined], None]
SyncReply = Callable[[Synced], None]


PENDING_MAX: Final = 1000
"""Member ids of a group that were given and not used yet. Who joins with an older one must ask for a new id."""
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member's join may wait: a client that gave up and retried would otherwise be two members."""


@dataclass(eq=False, slots=True)
class Member:
    """One member, from its first join until it leaves, its session expires or it is replaced."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    expires_ms: int
    """When its session expires (monotonic)."""
    is_new: bool = False
    """It waits for the response to its first join. It may have failed meanwhile: it sends no heartbeats yet."""
    assignment: bytes = b""
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def can_expire(self) -> bool:
        """Whether its session may expire: not while it waits for a response from the coordinator, unless it is new."""
        return self.is_new or (self.join_reply is None and self.sync_reply is None)

    def renew_session(self, now_ms: int) -> None:
        self.expires_ms = now_ms + self.session_timeout_ms

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_join(self, joined: Joined) -> None:
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(joined)

    def answer_sync(self, synced: Synced) -> None:
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(synced)


@dataclass(eq=False, slots=True)
class ClassicGroup:
    """The state of one group. `ClassicGroups` drives it, and applies timeouts and the log."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    state_since_ms: int = 0
    """When the group entered its state (wall clock); offset expiration uses it."""
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids that were assigned and have not joined yet, and when they expire."""
    join_deadline_ms: int | None = None
    """While a rebalance is being prepared: when it continues without members that have not joined."""
    initial_wait_ms: int = 0
    """For the first rebalance of an empty group: how long it may still be delayed for more members."""
    is_initial_delay: bool = False
    """Whether this is such a first rebalance, which is delayed even if all members have joined."""
    newly_joined: bool = False
    sync_deadline_ms: int | None = None
    """When members of this generation that have not sent SyncGroup are removed."""
    unsynced: set[str] = field(default_factory=set)
    subscribed: frozenset[str] | None = None
    """The topics that a consumer group's members subscribe to in this generation; None if not known."""
    supporters: Counter[str] = field(default_factory=Counter)
    """How many members support each protocol."""
    timeout_min_ms: int = NEW_MEMBER_JOIN_TIMEOUT_MS
    """The shortest timeout that a member has had."""
    is_recorded: bool = False
    """Whether the log has a record of the group."""
    due_ms: int | None = None
    """When `ClassicGroups` will check its deadlines next (monotonic)."""

    # --- queries

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member. Raises KafkaError(UNKNOWN_MEMBER_ID), or FENCED_INSTANCE_ID if another process replaced it."""
        if group_instance_id is not None:
            owner = self.static.get(group_instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one in common with all present members."""
        if not self.members:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        return not self.common_protocols().isdisjoint(name for name, _ in protocols)

    def common_protocols(self) -> set[str]:
        return {name for name, count in self.supporters.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all support."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return max(votes, key=lambda name: (votes[name], name))

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members of a consumer group subscribe to the topic; True if the subscriptions are not known."""
        return self.protocol_type == CONSUMER and (self.subscribed is None or topic in self.subscribed)

    @property
    def has_no_members(self) -> bool:
        """Whether it has no members, no pending members and no record in the log."""
        return not (self.members or self.pending or self.is_recorded)

    @property
    def is_unused(self) -> bool:
        """Whether it has no members and no pending members."""
        return self.state is GroupState.EMPTY and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def all_joined(self) -> bool:
        return not self.pending and all(member.join_reply is not None for member in self.members.values())

    def described_members(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (member.member_id, member.group_instance_id, member.metadata_for(self.protocol_name))
            for member in self.members.values()
        )

    def joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        """The JoinGroup response that describes the current generation to the member."""
        is_leader = member.member_id == self.leader
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader or "",
            self.described_members() if is_leader else (),
            skip_assignment and is_leader,
        )

    def synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def earliest_deadline_ms(self, now_ms: int) -> int | None:
        """The earliest deadline (monotonic), or a later one than `due_ms` if that comes first.

        Sessions that begin now end later than `due_ms`, unless that is far away, so that few calls look at all members.
        """
        is_soon = self.due_ms is not None and self.due_ms <= now_ms + self.timeout_min_ms
        return min(self._rebalance_deadlines() if is_soon else self.deadlines(), default=None)

    def _rebalance_deadlines(self) -> Iterator[int]:
        for deadline_ms in (self.join_deadline_ms, self.sync_deadline_ms):
            if deadline_ms is not None:
                yield deadline_ms

    def deadlines(self) -> Iterator[int]:
        """The current deadlines (monotonic)."""
        yield from self.pending.values()
        yield from self._rebalance_deadlines()
        for member in self.members.values():
            if member.can_expire:
                yield member.expires_ms

    # --- changes

    def add(self, member: Member) -> None:
        if not self.members:
            self.leader = None
        self.members[member.member_id] = member
        self._count(member, 1)
        self.leader = self.leader or member.member_id
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        self.pending.pop(member.member_id, None)

    def await_join(self, member_id: str, *, session_timeout_ms: int, now_ms: int) -> None:
        """A member id was given to a client, which is to join with it."""
        if len(self.pending) >= PENDING_MAX:
            del self.pending[next(iter(self.pending))]
        self.pending[member_id] = now_ms + session_timeout_ms
        self.timeout_min_ms = min(self.timeout_min_ms, session_timeout_ms)

    def update(
        self, member: Member, protocols: Protocols, *, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """What a member of the group says when it joins again."""
        self._count(member, -1)
        member.protocols = protocols
        member.rebalance_timeout_ms, member.session_timeout_ms = rebalance_timeout_ms, session_timeout_ms
        self._count(member, 1)

    def _count(self, member: Member, change: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self.supporters[name] += change
            if not self.supporters[name]:
                del self.supporters[name]
        self.timeout_min_ms = min(self.timeout_min_ms, member.session_timeout_ms)

    def remove(self, member: Member, error_code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove the member and answer its waiting requests. If it was the leader another member becomes leader."""
        del self.members[member.member_id]
        self._count(member, -1)
        self.unsynced.discard(member.member_id)
        if member.group_instance_id is not None and self.static.get(member.group_instance_id) == member.member_id:
            del self.static[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        member.answer_join(Joined(error_code, ""))
        member.answer_sync(Synced(error_code))

    def replace(self, old: Member, new_id: str) -> None:
        """A new process with the same instance id replaces the old one, which is fenced."""
        old.is_new = False
        old.answer_join(Joined(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        old.answer_sync(Synced(ErrorCode.FENCED_INSTANCE_ID))
        self.members = {(new_id if member is old else member_id): member for member_id, member in self.members.items()}
        if old.member_id in self.unsynced:
            self.unsynced.remove(old.member_id)
            self.unsynced.add(new_id)
        if self.leader == old.member_id:
            self.leader = new_id
        old.member_id = new_id
        assert old.group_instance_id is not None
        self.static[old.group_instance_id] = new_id

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader, if the present one has not. Returns whether there is one."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader = member.member_id
                return True
        return False

    def interrupt_sync(self, error_code: ErrorCode, now_ms: int) -> None:
        """Discard the assignments of this generation: members that wait for theirs must rejoin."""
        for member in self.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                member.renew_session(now_ms)
                member.answer_sync(Synced(error_code))

    def cancel_sync_timeout(self) -> None:
        self.sync_deadline_ms = None
        self.unsynced.clear()

    def update_subscriptions(self) -> None:
        """Update `subscribed` for a new generation or an empty group."""
        wanted = [subscribed_topics(member.metadata_for(self.protocol_name)) for member in self.members.values()]
        known = [topics for topics in wanted if topics is not None]
        self.subscribed = frozenset().union(*known) if len(known) == len(wanted) else None

    def enter(self, state: GroupState, now_wall_ms: int) -> None:
        self.state = state
        self.state_since_ms = now_wall_ms

    # --- the record

    def committed(self, assignments: dict[str, bytes]) -> GroupCommitted:
        """The record of this generation with these assignments."""
        members = tuple(
            CommittedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(self.protocol_name),
                assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupCommitted(
            self.group_id,
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader,
            self.state_since_ms,
            members,
        )

    @classmethod
    def from_record(cls, record: GroupCommitted) -> ClassicGroup:
        """The group of a record, for a coordinator that loads the log. The sessions of its members do not run yet."""
        group = cls(
            record.group,
            GroupState.STABLE if record.members else GroupState.EMPTY,
            record.generation_id,
            record.protocol_type or None,
            record.protocol_name,
            record.leader,
            record.state_timestamp_ms,
        )
        for each in record.members:
            group.add(
                Member(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    each.rebalance_timeout_ms,
                    each.session_timeout_ms,
                    ((record.protocol_name or "", each.subscription),),
                    expires_ms=0,
                    assignment=each.assignment,
                )
            )
        group.leader = record.leader
        group.is_recorded = True
        group.update_subscriptions()
        return group
