"""The records of a streams group in __consumer_offsets, in Kafka's own formats.

kind  member  value
17    -       group epoch, hash of the metadata of the topics, epoch of the topology that was found valid, and the
              configuration that the last assignment depends on
19    yes     client, process, rebalance timeout, topology epoch, endpoint, tags
20    -       epoch of the target assignment
21    yes     the tasks that the member is to get
22    yes     member epoch, state, tasks that it has and that it is to revoke
23    -       the topology

`record_format` says how they are encoded. Kind 18 was never released.
Source: Kafka's StreamsGroup*Key.json and StreamsGroup*Value.json (4.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final

from raylog.core.errors import InvariantViolation
from raylog.groupcoord.record_format import RecordFormat, value_api
from raylog.groupcoord.streams.tasks import TaskId, Tasks, by_subtopology
from raylog.protocol.messages.streams_group_heartbeat import Endpoint, KeyValue, Subtopology, Topology
from raylog.protocol.schema import Api, array, int8, int32, int64, message, string, struct

GROUP_EPOCH: Final = 17
MEMBER: Final = 19
TARGET_EPOCH: Final = 20
MEMBER_TARGET: Final = 21
MEMBER_ASSIGNMENT: Final = 22
TOPOLOGY: Final = 23
OF_MEMBER: Final = (MEMBER_ASSIGNMENT, MEMBER_TARGET, MEMBER)
"""The kinds of a member, in the order in which they are deleted."""
NO_TOPOLOGY_EPOCH: Final = -1


class MemberState(IntEnum):
    """How far a member has come to its target assignment, with the numbers of Kafka's log."""

    STABLE = 1
    """It has the target assignment of its epoch."""
    UNREVOKED_TASKS = 2
    """It must revoke tasks before it gets the next epoch."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that their previous owners have not revoked yet."""


@dataclass(frozen=True, slots=True)
class StreamsGroupEpochBumped:
    """Members, topics or the configuration have changed: a new target assignment is needed."""

    group: str
    group_epoch: int
    metadata_hash: int
    validated_topology_epoch: int = NO_TOPOLOGY_EPOCH
    """NO_TOPOLOGY_EPOCH as long as topics are missing, or have other numbers of partitions than the topology needs."""
    assignment_configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopologySet:
    """The first member has brought the topology of the application."""

    group: str
    topology: Topology


@dataclass(frozen=True, slots=True)
class StreamsMemberJoined:
    """A member has joined, or has changed what it says about itself."""

    group: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""
    """Of the application's instance, which may have several members."""
    endpoint: tuple[str, int] | None = None
    """Host and port where the instance answers queries of its state."""
    client_tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsTargetDecided:
    """The target assignments of all members are those of this epoch; follows the StreamsMemberTargeted records."""

    group: str
    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class StreamsMemberTargeted:
    """The tasks that the member is to get have changed."""

    group: str
    member_id: str
    tasks: Tasks


@dataclass(frozen=True, slots=True)
class StreamsMemberAssigned:
    """The member's epoch, state or tasks have changed. It owns the tasks that it is to revoke as well."""

    group: str
    member_id: str
    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Tasks
    revoking: Tasks
    epochs: Mapping[TaskId, int] = field(default_factory=dict)
    """The epochs in which the member has got its active tasks, of both kinds."""


@dataclass(frozen=True, slots=True)
class StreamsRecordDeleted:
    """The tombstone of the record of this kind and member."""

    group: str
    kind: int
    member_id: str = ""


StreamsRecord = (
    StreamsGroupEpochBumped
    | TopologySet
    | StreamsMemberJoined
    | StreamsTargetDecided
    | StreamsMemberTargeted
    | StreamsMemberAssigned
    | StreamsRecordDeleted
)


# --- the values


@message
class _GroupEpoch:
    api: ClassVar[Api] = value_api("StreamsGroupMetadataValue")
    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(NO_TOPOLOGY_EPOCH, tag=0)
    last_assignment_configs: tuple[KeyValue, ...] | None = array(KeyValue, null_since=0, tag=1)


@message
class _Topology:
    """The structure of a topology is the one in which members send it."""

    api: ClassVar[Api] = value_api("StreamsGroupTopologyValue")
    epoch: int = int32()
    subtopologies: tuple[Subtopology, ...] = array(Subtopology)


@message
class _Member:
    api: ClassVar[Api] = value_api("StreamsGroupMemberMetadataValue")
    instance_id: str | None = string(None, null_since=0)
    rack_id: str | None = string(None, null_since=0)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, None, null_since=0)
    client_tags: tuple[KeyValue, ...] = array(KeyValue)


@message
class _TargetEpoch:
    api: ClassVar[Api] = value_api("StreamsGroupTargetAssignmentMetadataValue")
    assignment_epoch: int = int32()


@message
class _TaskIds:
    subtopology_id: str = string()
    partitions: tuple[int, ...] = array(int32)
    assignment_epochs: tuple[int, ...] | None = array(int32, null_since=0, tag=0)
    """Of active tasks that a member has; else empty."""


@message
class _MemberTarget:
    api: ClassVar[Api] = value_api("StreamsGroupTargetAssignmentMemberValue")
    active_tasks: tuple[_TaskIds, ...] = array(_TaskIds)
    standby_tasks: tuple[_TaskIds, ...] = array(_TaskIds)
    warmup_tasks: tuple[_TaskIds, ...] = array(_TaskIds)


@message
class _MemberAssignment:
    api: ClassVar[Api] = value_api("StreamsGroupCurrentMemberAssignmentValue")
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: tuple[_TaskIds, ...] = array(_TaskIds)
    standby_tasks: tuple[_TaskIds, ...] = array(_TaskIds)
    warmup_tasks: tuple[_TaskIds, ...] = array(_TaskIds)
    active_tasks_pending_revocation: tuple[_TaskIds, ...] = array(_TaskIds)
    standby_tasks_pending_revocation: tuple[_TaskIds, ...] = array(_TaskIds)
    warmup_tasks_pending_revocation: tuple[_TaskIds, ...] = array(_TaskIds)


def _parts(record: StreamsRecord) -> tuple[int, str, Any]:
    match record:
        case StreamsRecordDeleted():
            return record.kind, record.member_id, None
        case StreamsGroupEpochBumped():
            epoch = _GroupEpoch(
                epoch=record.group_epoch,
                metadata_hash=record.metadata_hash,
                validated_topology_epoch=record.validated_topology_epoch,
                last_assignment_configs=_key_values(record.assignment_configs),
            )
            return GROUP_EPOCH, "", epoch
        case TopologySet(_, topology):
            return TOPOLOGY, "", _Topology(epoch=topology.epoch, subtopologies=topology.subtopologies)
        case StreamsMemberJoined():
            return MEMBER, record.member_id, _member(record)
        case StreamsTargetDecided():
            return TARGET_EPOCH, "", _TargetEpoch(assignment_epoch=record.assignment_epoch)
        case StreamsMemberTargeted(_, member_id, tasks):
            target = _MemberTarget(
                active_tasks=_task_ids(tasks.active),
                standby_tasks=_task_ids(tasks.standby),
                warmup_tasks=_task_ids(tasks.warmup),
            )
            return MEMBER_TARGET, member_id, target
        case StreamsMemberAssigned():
            assignment = _MemberAssignment(
                member_epoch=record.member_epoch,
                previous_member_epoch=record.previous_epoch,
                state=record.state,
                active_tasks=_task_ids(record.assigned.active, record.epochs),
                standby_tasks=_task_ids(record.assigned.standby),
                warmup_tasks=_task_ids(record.assigned.warmup),
                active_tasks_pending_revocation=_task_ids(record.revoking.active, record.epochs),
                standby_tasks_pending_revocation=_task_ids(record.revoking.standby),
                warmup_tasks_pending_revocation=_task_ids(record.revoking.warmup),
            )
            return MEMBER_ASSIGNMENT, record.member_id, assignment


def _record(group: str, member_id: str, value: object) -> StreamsRecord:
    match value:
        case _GroupEpoch():
            return StreamsGroupEpochBumped(
                group,
                value.epoch,
                value.metadata_hash,
                value.validated_topology_epoch,
                _pairs(value.last_assignment_configs or ()),
            )
        case _Topology():
            return TopologySet(group, Topology(epoch=value.epoch, subtopologies=value.subtopologies))
        case _Member():
            return StreamsMemberJoined(
                group,
                member_id,
                value.instance_id,
                value.rack_id,
                value.client_id,
                value.client_host,
                value.rebalance_timeout_ms,
                value.topology_epoch,
                value.process_id,
                None if value.user_endpoint is None else (value.user_endpoint.host, value.user_endpoint.port),
                _pairs(value.client_tags),
            )
        case _TargetEpoch():
            return StreamsTargetDecided(group, value.assignment_epoch)
        case _MemberTarget():
            tasks = Tasks(_ids(value.active_tasks), _ids(value.standby_tasks), _ids(value.warmup_tasks))
            return StreamsMemberTargeted(group, member_id, tasks)
        case _MemberAssignment():
            return _assigned(group, member_id, value)
    raise InvariantViolation(f"no record has the value {value!r}")


def _member(record: StreamsMemberJoined) -> _Member:
    return _Member(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        topology_epoch=record.topology_epoch,
        process_id=record.process_id,
        user_endpoint=None if record.endpoint is None else Endpoint(host=record.endpoint[0], port=record.endpoint[1]),
        client_tags=_key_values(record.client_tags),
    )


def _assigned(group: str, member_id: str, value: _MemberAssignment) -> StreamsMemberAssigned:
    assigned = Tasks(_ids(value.active_tasks), _ids(value.standby_tasks), _ids(value.warmup_tasks))
    revoking = Tasks(
        _ids(value.active_tasks_pending_revocation),
        _ids(value.standby_tasks_pending_revocation),
        _ids(value.warmup_tasks_pending_revocation),
    )
    epochs = _epochs((*value.active_tasks, *value.active_tasks_pending_revocation), value.member_epoch)
    state = MemberState(value.state)
    return StreamsMemberAssigned(
        group, member_id, value.member_epoch, value.previous_member_epoch, state, assigned, revoking, epochs
    )


def _epochs(active: Iterable[_TaskIds], member_epoch: int) -> dict[TaskId, int]:
    """Records without epochs, of Kafka 4.1, count for the member's epoch."""
    found: dict[TaskId, int] = {}
    for each in active:
        epochs = each.assignment_epochs or (member_epoch,) * len(each.partitions)
        for partition, epoch in zip(each.partitions, epochs, strict=True):
            found[each.subtopology_id, partition] = epoch
    return found


def _task_ids(tasks: frozenset[TaskId], epochs: Mapping[TaskId, int] | None = None) -> tuple[_TaskIds, ...]:
    return tuple(
        _TaskIds(
            subtopology_id=subtopology_id,
            partitions=partitions,
            assignment_epochs=() if epochs is None else tuple(epochs[subtopology_id, each] for each in partitions),
        )
        for subtopology_id, partitions in by_subtopology(tasks).items()
    )


def _ids(tasks: tuple[_TaskIds, ...]) -> frozenset[TaskId]:
    return frozenset((each.subtopology_id, partition) for each in tasks for partition in each.partitions)


def _key_values(pairs: tuple[tuple[str, str], ...]) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(key=key, value=value) for key, value in pairs)


def _pairs(key_values: tuple[KeyValue, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((each.key, each.value) for each in key_values)


FORMAT: Final[RecordFormat[StreamsRecord]] = RecordFormat(
    values={
        GROUP_EPOCH: _GroupEpoch,
        MEMBER: _Member,
        TARGET_EPOCH: _TargetEpoch,
        MEMBER_TARGET: _MemberTarget,
        MEMBER_ASSIGNMENT: _MemberAssignment,
        TOPOLOGY: _Topology,
    },
    named=OF_MEMBER,
    parts=_parts,
    record=_record,
    deleted=StreamsRecordDeleted,
)
