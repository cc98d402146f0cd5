"""One streams group as the log describes it: topology, members, target assignment, and who owns which task.

Three epochs order what happens, as in a consumer group (`groupcoord/consumer/group.py`). A fourth one, of the topology,
says which version of the application a member runs. `replay` is the only method that changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from raylog.groupcoord.streams import records
from raylog.groupcoord.streams.records import (
    NO_TOPOLOGY_EPOCH,
    MemberState,
    StreamsGroupEpochBumped,
    StreamsMemberAssigned,
    StreamsMemberJoined,
    StreamsMemberTargeted,
    StreamsRecord,
    StreamsRecordDeleted,
    StreamsTargetDecided,
    TopologySet,
)
from raylog.groupcoord.streams.tasks import NO_TASKS, TaskId, Tasks
from raylog.groupcoord.streams.topology import source_topics
from raylog.protocol.messages.streams_group_heartbeat import Topology


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member: what it has told about itself, and what it has been given."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    member_epoch: int = 0
    previous_epoch: int = 0
    """The epoch that a member still sends if the response with its newest one was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Tasks = NO_TASKS
    revoking: Tasks = NO_TASKS
    """What it still owns and must revoke."""
    epochs: Mapping[TaskId, int] = field(default_factory=dict)
    """The epochs in which it has got its active tasks."""


@dataclass(eq=True, slots=True)
class StreamsGroup:
    """The state of one group."""

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    """Of the topics at the last group epoch."""
    validated_topology_epoch: int = NO_TOPOLOGY_EPOCH
    assignment_configs: tuple[tuple[str, str], ...] = ()
    assignment_epoch: int = 0
    topology: Topology | None = None
    source_topics: Mapping[str, str] = field(default_factory=dict)
    """The subtopology that reads each topic."""
    members: dict[str, StreamsMember] = field(default_factory=dict)
    target: dict[str, Tasks] = field(default_factory=dict)
    active_owners: dict[TaskId, str] = field(default_factory=dict)
    """The member that has an active task, or has not revoked it yet."""
    passive_owners: dict[TaskId, frozenset[str]] = field(default_factory=dict)
    """The same for standby and warm-up tasks."""

    def copy(self) -> StreamsGroup:
        """A group that can be changed without an effect on this one."""
        return replace(
            self,
            members=dict(self.members),
            target=dict(self.target),
            active_owners=dict(self.active_owners),
            passive_owners=dict(self.passive_owners),
        )

    # --- queries

    @property
    def state(self) -> str:
        """The state names of StreamsGroupDescribe."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        for member in self.members.values():
            if member.state is not MemberState.STABLE or member.member_epoch != self.assignment_epoch:
                return "Reconciling"
        return "Stable"

    def topic_names(self) -> Iterable[str]:
        """The topics that the members read; those of a group without members do not count."""
        return self.source_topics.keys() if self.members else ()

    def active_process(self, task: TaskId) -> str | None:
        """The process that has the active task."""
        owner = self.active_owners.get(task)
        return None if owner is None else self.members[owner].process_id

    def passive_processes(self, task: TaskId) -> set[str]:
        """The processes that have it as a standby or warm-up task."""
        return {self.members[owner].process_id for owner in self.passive_owners.get(task, ())}

    # --- changes

    def replay(self, record: StreamsRecord) -> None:
        """Apply a record of the log."""
        match record:
            case StreamsGroupEpochBumped():
                self.group_epoch, self.metadata_hash = record.group_epoch, record.metadata_hash
                self.validated_topology_epoch = record.validated_topology_epoch
                self.assignment_configs = record.assignment_configs
            case TopologySet():
                self.topology = record.topology
                self.source_topics = {
                    name: subtopology.subtopology_id
                    for subtopology in record.topology.subtopologies
                    for name in source_topics(subtopology)
                }
            case StreamsMemberJoined():
                self._joined(record)
            case StreamsMemberTargeted():
                self.target[record.member_id] = record.tasks
            case StreamsTargetDecided():
                self.assignment_epoch = record.assignment_epoch
            case StreamsMemberAssigned():
                self._assigned(record)
            case StreamsRecordDeleted():
                self._deleted(record.kind, record.member_id)

    def _joined(self, record: StreamsMemberJoined) -> None:
        self.members[record.member_id] = replace(
            self.members.get(record.member_id) or StreamsMember(record.member_id),
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            topology_epoch=record.topology_epoch,
            process_id=record.process_id,
            endpoint=record.endpoint,
            client_tags=record.client_tags,
        )

    def _assigned(self, record: StreamsMemberAssigned) -> None:
        member_id = record.member_id
        member = self.members.get(member_id) or StreamsMember(member_id)
        self._release(member)
        self.members[member_id] = replace(
            member,
            member_epoch=record.member_epoch,
            previous_epoch=record.previous_epoch,
            state=record.state,
            assigned=record.assigned,
            revoking=record.revoking,
            epochs=record.epochs,
        )
        for task in record.assigned.active | record.revoking.active:
            self.active_owners[task] = member_id
        for task in record.assigned.passive | record.revoking.passive:
            self.passive_owners[task] = self.passive_owners.get(task, frozenset()) | {member_id}

    def _release(self, member: StreamsMember) -> None:
        for task in member.assigned.active | member.revoking.active:
            if self.active_owners.get(task) == member.member_id:
                del self.active_owners[task]
        for task in member.assigned.passive | member.revoking.passive:
            rest = self.passive_owners.get(task, frozenset()) - {member.member_id}
            if rest:
                self.passive_owners[task] = rest
            else:
                self.passive_owners.pop(task, None)

    def _deleted(self, kind: int, member_id: str) -> None:
        member = self.members.get(member_id)
        if kind == records.MEMBER_ASSIGNMENT and member is not None:
            self._release(member)
            self.members[member_id] = replace(member, assigned=NO_TASKS, revoking=NO_TASKS, epochs={})
        elif kind == records.MEMBER and member is not None:
            self._release(member)
            del self.members[member_id]
        elif kind == records.MEMBER_TARGET:
            self.target.pop(member_id, None)
        elif kind == records.TARGET_EPOCH:
            self.assignment_epoch = 0
        elif kind == records.TOPOLOGY:
            self.topology, self.source_topics = None, {}
