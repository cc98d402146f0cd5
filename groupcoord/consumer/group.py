"""One consumer group as the log describes it: members, target assignment, and who owns which partition.

Three epochs order what happens. The group epoch rises when subscriptions or topics change. The assignment epoch follows
it once a target assignment for it is decided. The epoch of a member follows that once the member has revoked everything
that it is not to keep. `replay` is the only method that changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from raylog.groupcoord.consumer import records
from raylog.groupcoord.consumer.records import (
    NO_PARTITIONS,
    ClassicProtocols,
    ConsumerRecord,
    ConsumerRecordDeleted,
    GroupEpochBumped,
    MemberAssigned,
    MemberState,
    MemberSubscribed,
    MemberTargeted,
    Partitions,
    RegexResolved,
    TargetDecided,
    TopicIdPartition,
)

LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that has left and is expected to return."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member: what it has told about itself, and what it has been given."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None
    """None unless it uses the classic protocol."""
    member_epoch: int = 0
    previous_epoch: int = 0
    """The epoch that a member still sends if the response with its newest one was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """What it still owns and must revoke."""


@dataclass(eq=True, slots=True)
class ConsumerGroup:
    """The state of one group."""

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    """Of the subscribed topics at the last group epoch."""
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    target: dict[str, Partitions] = field(default_factory=dict)
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    """Who owns a partition: it is assigned to that member, or not revoked by it yet."""
    regexes: dict[str, RegexResolved] = field(default_factory=dict)

    def copy(self) -> ConsumerGroup:
        """A group that can be changed without an effect on this one."""
        return replace(
            self,
            members=dict(self.members),
            static=dict(self.static),
            target=dict(self.target),
            owners=dict(self.owners),
            regexes=dict(self.regexes),
        )

    # --- queries

    @property
    def state(self) -> str:
        """The state names of ConsumerGroupDescribe."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        for member in self.members.values():
            if member.state is not MemberState.STABLE or member.member_epoch not in (
                self.assignment_epoch,
                LEFT_FOR_A_WHILE,
            ):
                return "Reconciling"
        return "Stable"

    def topic_names_of(self, member: Member) -> set[str]:
        """The topics that the member subscribes to, by name and by regular expression."""
        names = set(member.topic_names)
        resolved = self.regexes.get(member.topic_regex or "")
        return names if resolved is None else names.union(resolved.topic_names)

    def topic_names(self) -> set[str]:
        """The topics that any member subscribes to."""
        names = {name for member in self.members.values() for name in member.topic_names}
        return names.union(*(resolved.topic_names for resolved in self.regexes.values()))

    def is_released(self, member: Member) -> bool:
        """Whether the member may get something that it waits for: its former owner has revoked it."""
        wanted = self.target.get(member.member_id, NO_PARTITIONS) - member.assigned
        return any(partition not in self.owners for partition in wanted)

    def used_regexes(self) -> set[str]:
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    # --- changes

    def replay(self, record: ConsumerRecord) -> None:
        """Apply a record of the log."""
        match record:
            case GroupEpochBumped():
                self.group_epoch, self.metadata_hash = record.group_epoch, record.metadata_hash
            case MemberSubscribed():
                self._subscribed(record)
            case MemberTargeted():
                self.target[record.member_id] = record.partitions
            case TargetDecided():
                self.assignment_epoch = record.assignment_epoch
            case MemberAssigned():
                self._assigned(record)
            case RegexResolved():
                self.regexes[record.regex] = record
            case ConsumerRecordDeleted():
                self._deleted(record.kind, record.name)

    def _subscribed(self, record: MemberSubscribed) -> None:
        known = self.members.get(record.member_id) or Member(record.member_id)
        self._forget_instance(known)
        self.members[record.member_id] = replace(
            known,
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            topic_names=record.topic_names,
            topic_regex=record.topic_regex,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            server_assignor=record.server_assignor,
            classic=record.classic,
        )
        if record.instance_id is not None:
            self.static[record.instance_id] = record.member_id

    def _assigned(self, record: MemberAssigned) -> None:
        member = self.members.get(record.member_id) or Member(record.member_id)
        self._release(member)
        self.members[record.member_id] = replace(
            member,
            member_epoch=record.member_epoch,
            previous_epoch=record.previous_epoch,
            state=record.state,
            assigned=record.assigned,
            revoking=record.revoking,
        )
        for partition in record.assigned | record.revoking:
            self.owners[partition] = record.member_id

    def _release(self, member: Member) -> None:
        for partition in member.assigned | member.revoking:
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]

    def _forget_instance(self, member: Member) -> None:
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]

    def _deleted(self, kind: int, name: str) -> None:
        member = self.members.get(name)
        if kind == records.MEMBER_ASSIGNMENT and member is not None:
            self._release(member)
            self.members[name] = replace(member, assigned=NO_PARTITIONS, revoking=NO_PARTITIONS)
        elif kind == records.MEMBER and member is not None:
            self._release(member)
            del self.members[name]
            self._forget_instance(member)
        elif kind == records.MEMBER_TARGET:
            self.target.pop(name, None)
        elif kind == records.TARGET_EPOCH:
            self.assignment_epoch = 0
        elif kind == records.REGULAR_EXPRESSION:
            self.regexes.pop(name, None)
