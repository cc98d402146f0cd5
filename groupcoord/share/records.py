"""The records of a share group in __consumer_offsets, in Kafka's own formats.

kind  name        value
10    member id   client, subscription
11    -           group epoch, hash of the metadata of the subscribed topics
12    -           epoch of the target assignment
13    member id   the partitions that the member is to get
14    member id   member epoch, partitions that it has
15    -           the partitions whose state exists at the share coordinator, or is being created or deleted

`record_format` says how they are encoded.
Source: Kafka's ShareGroup*Key.json and ShareGroup*Value.json (4.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from uuid import UUID

from raylog.core.errors import InvariantViolation
from raylog.groupcoord.consumer.records import Partitions, TopicPartitions, by_topic, numbers_by_topic
from raylog.groupcoord.record_format import RecordFormat, value_api
from raylog.protocol.schema import Api, array, int8, int32, int64, message, string, uuid

MEMBER: Final = 10
GROUP_EPOCH: Final = 11
TARGET_EPOCH: Final = 12
MEMBER_TARGET: Final = 13
MEMBER_ASSIGNMENT: Final = 14
STATE_PARTITIONS: Final = 15
_NAMED: Final = frozenset({MEMBER, MEMBER_TARGET, MEMBER_ASSIGNMENT})
_STABLE: Final = 0
"""A member has its target assignment as soon as it knows of it: no other state occurs in share groups."""


@dataclass(frozen=True, slots=True)
class ShareGroupEpochBumped:
    """Subscriptions or topics have changed: a new target assignment is needed."""

    group: str
    group_epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class ShareMemberSubscribed:
    """A member has joined, or has changed its subscription."""

    group: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareTargetDecided:
    """The target assignments of all members are those of this epoch; follows the ShareMemberTargeted records."""

    group: str
    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class ShareMemberTargeted:
    """The partitions that the member is to get have changed."""

    group: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ShareMemberAssigned:
    """The member's epoch or partitions have changed."""

    group: str
    member_id: str
    member_epoch: int
    previous_epoch: int
    assigned: Partitions


@dataclass(frozen=True, slots=True)
class StatePartitionsChanged:
    """The partitions whose state is being created, exists, or is being deleted (whole topics) has changed."""

    group: str
    initializing: Partitions
    initialized: Partitions
    deleting: frozenset[UUID]
    names: tuple[tuple[UUID, str], ...]
    """Of the topics, for those who read the log."""
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ShareRecordDeleted:
    """The tombstone of the record of this kind and name."""

    group: str
    kind: int
    name: str = ""


ShareGroupRecord = (
    ShareGroupEpochBumped
    | ShareMemberSubscribed
    | ShareTargetDecided
    | ShareMemberTargeted
    | ShareMemberAssigned
    | StatePartitionsChanged
    | ShareRecordDeleted
)


# --- the values


@message
class _Member:
    api: ClassVar[Api] = value_api("ShareGroupMemberMetadataValue")
    rack_id: str | None = string(None, null_since=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: tuple[str, ...] = array(string)


@message
class _GroupEpoch:
    api: ClassVar[Api] = value_api("ShareGroupMetadataValue")
    epoch: int = int32()
    metadata_hash: int = int64()


@message
class _TargetEpoch:
    api: ClassVar[Api] = value_api("ShareGroupTargetAssignmentMetadataValue")
    assignment_epoch: int = int32()


@message
class _MemberTarget:
    api: ClassVar[Api] = value_api("ShareGroupTargetAssignmentMemberValue")
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions)


@message
class _MemberAssignment:
    api: ClassVar[Api] = value_api("ShareGroupCurrentMemberAssignmentValue")
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions)


@message
class _TopicPartitionsInfo:
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: tuple[int, ...] = array(int32)
    create_timestamp: int = int64()


@message
class _TopicInfo:
    topic_id: UUID = uuid()
    topic_name: str = string()


@message
class _StatePartitions:
    api: ClassVar[Api] = value_api("ShareGroupStatePartitionMetadataValue")
    initializing_topics: tuple[_TopicPartitionsInfo, ...] = array(_TopicPartitionsInfo)
    initialized_topics: tuple[_TopicPartitionsInfo, ...] = array(_TopicPartitionsInfo)
    deleting_topics: tuple[_TopicInfo, ...] = array(_TopicInfo)


def _parts(record: ShareGroupRecord) -> tuple[int, str, Any]:
    match record:
        case ShareRecordDeleted():
            return record.kind, record.name, None
        case ShareGroupEpochBumped():
            return GROUP_EPOCH, "", _GroupEpoch(epoch=record.group_epoch, metadata_hash=record.metadata_hash)
        case ShareMemberSubscribed():
            member = _Member(
                rack_id=record.rack_id,
                client_id=record.client_id,
                client_host=record.client_host,
                subscribed_topic_names=record.topic_names,
            )
            return MEMBER, record.member_id, member
        case ShareTargetDecided():
            return TARGET_EPOCH, "", _TargetEpoch(assignment_epoch=record.assignment_epoch)
        case ShareMemberTargeted():
            return MEMBER_TARGET, record.member_id, _MemberTarget(topic_partitions=by_topic(record.partitions))
        case ShareMemberAssigned():
            assignment = _MemberAssignment(
                member_epoch=record.member_epoch,
                previous_member_epoch=record.previous_epoch,
                state=_STABLE,
                assigned_partitions=by_topic(record.assigned),
            )
            return MEMBER_ASSIGNMENT, record.member_id, assignment
        case StatePartitionsChanged():
            names = dict(record.names)
            state = _StatePartitions(
                initializing_topics=_infos(record.initializing, names, record.timestamp_ms),
                initialized_topics=_infos(record.initialized, names, record.timestamp_ms),
                deleting_topics=tuple(
                    _TopicInfo(topic_id=topic_id, topic_name=names.get(topic_id, ""))
                    for topic_id in sorted(record.deleting, key=lambda each: each.int)
                ),
            )
            return STATE_PARTITIONS, "", state


def _record(group: str, name: str, value: object) -> ShareGroupRecord:
    match value:
        case _GroupEpoch():
            return ShareGroupEpochBumped(group, value.epoch, value.metadata_hash)
        case _Member():
            return ShareMemberSubscribed(
                group, name, value.rack_id, value.client_id, value.client_host, value.subscribed_topic_names
            )
        case _TargetEpoch():
            return ShareTargetDecided(group, value.assignment_epoch)
        case _MemberTarget():
            return ShareMemberTargeted(group, name, _partitions(value.topic_partitions))
        case _MemberAssignment():
            return ShareMemberAssigned(
                group,
                name,
                value.member_epoch,
                value.previous_member_epoch,
                _partitions(value.assigned_partitions),
            )
        case _StatePartitions():
            infos = (*value.initializing_topics, *value.initialized_topics)
            names = {info.topic_id: info.topic_name for info in infos}
            names |= {topic.topic_id: topic.topic_name for topic in value.deleting_topics}
            return StatePartitionsChanged(
                group,
                _partitions(value.initializing_topics),
                _partitions(value.initialized_topics),
                frozenset(topic.topic_id for topic in value.deleting_topics),
                tuple(sorted(names.items())),
                max((info.create_timestamp for info in infos), default=-1),
            )
    raise InvariantViolation(f"no record has the value {value!r}")


def _infos(partitions: Partitions, names: dict[UUID, str], timestamp_ms: int) -> tuple[_TopicPartitionsInfo, ...]:
    return tuple(
        _TopicPartitionsInfo(
            topic_id=topic_id,
            topic_name=names.get(topic_id, ""),
            partitions=numbers,
            create_timestamp=timestamp_ms,
        )
        for topic_id, numbers in numbers_by_topic(partitions).items()
    )


def _partitions(topics: Iterable[TopicPartitions | _TopicPartitionsInfo]) -> Partitions:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


FORMAT: Final[RecordFormat[ShareGroupRecord]] = RecordFormat(
    values={
        MEMBER: _Member,
        GROUP_EPOCH: _GroupEpoch,
        TARGET_EPOCH: _TargetEpoch,
        MEMBER_TARGET: _MemberTarget,
        MEMBER_ASSIGNMENT: _MemberAssignment,
        STATE_PARTITIONS: _StatePartitions,
    },
    named=_NAMED,
    parts=_parts,
    record=_record,
    deleted=ShareRecordDeleted,
)
