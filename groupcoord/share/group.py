"""One share group as the log describes it: members, target assignment, and which partitions have state.

`replay` is the only method that changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from raylog.groupcoord.consumer.records import NO_PARTITIONS, Partitions
from raylog.groupcoord.share import records
from raylog.groupcoord.share.records import (
    ShareGroupEpochBumped,
    ShareGroupRecord,
    ShareMemberAssigned,
    ShareMemberSubscribed,
    ShareMemberTargeted,
    ShareRecordDeleted,
    ShareTargetDecided,
    StatePartitionsChanged,
)


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member: what it has told about itself, and what it has been given."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_epoch: int = 0
    """The epoch that a member still sends if the response with its newest one was lost."""
    assigned: Partitions = NO_PARTITIONS


@dataclass(eq=True, slots=True)
class ShareGroup:
    """The state of one group."""

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    """Of the subscribed topics at the last group epoch."""
    assignment_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    initializing: Partitions = NO_PARTITIONS
    """Partitions whose state is being created at the share coordinator."""
    initialized: Partitions = NO_PARTITIONS
    """Partitions that have state: only these are assigned."""
    deleting: frozenset[UUID] = frozenset()
    """Topics whose state is being deleted."""
    names: dict[UUID, str] = field(default_factory=dict)
    """Of the topics with state."""

    def copy(self) -> ShareGroup:
        """A group that can be changed without an effect on this one."""
        return replace(self, members=dict(self.members), target=dict(self.target), names=dict(self.names))

    @property
    def state(self) -> str:
        """The state names of ShareGroupDescribe."""
        return "Stable" if self.members else "Empty"

    def topic_names(self) -> set[str]:
        """The topics that any member subscribes to."""
        return {name for member in self.members.values() for name in member.topic_names}

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a record of the log."""
        match record:
            case ShareGroupEpochBumped():
                self.group_epoch, self.metadata_hash = record.group_epoch, record.metadata_hash
            case ShareMemberSubscribed():
                self.members[record.member_id] = replace(
                    self.members.get(record.member_id) or ShareMember(record.member_id),
                    rack_id=record.rack_id,
                    client_id=record.client_id,
                    client_host=record.client_host,
                    topic_names=record.topic_names,
                )
            case ShareMemberTargeted():
                self.target[record.member_id] = record.partitions
            case ShareTargetDecided():
                self.assignment_epoch = record.assignment_epoch
            case ShareMemberAssigned():
                self.members[record.member_id] = replace(
                    self.members.get(record.member_id) or ShareMember(record.member_id),
                    member_epoch=record.member_epoch,
                    previous_epoch=record.previous_epoch,
                    assigned=record.assigned,
                )
            case StatePartitionsChanged():
                self.initializing, self.initialized = record.initializing, record.initialized
                self.deleting, self.names = record.deleting, dict(record.names)
            case ShareRecordDeleted():
                self._deleted(record.kind, record.name)

    def _deleted(self, kind: int, name: str) -> None:
        if kind == records.MEMBER:
            self.members.pop(name, None)
        elif kind == records.MEMBER_TARGET:
            self.target.pop(name, None)
        elif kind == records.MEMBER_ASSIGNMENT and name in self.members:
            self.members[name] = replace(self.members[name], assigned=NO_PARTITIONS)
        elif kind == records.TARGET_EPOCH:
            self.assignment_epoch = 0
        elif kind == records.STATE_PARTITIONS:
            self.initializing = self.initialized = NO_PARTITIONS
            self.deleting, self.names = frozenset(), {}
