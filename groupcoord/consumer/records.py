"""The records of a consumer group in __consumer_offsets, in Kafka's own formats.

kind  name                 value
3     -                    group epoch, hash of the metadata of the subscribed topics
4     -                    partitions of the subscribed topics; Kafka 4.0 wrote it, raylog ignores it
5     member id            client, subscription, rebalance timeout, assignor
6     -                    epoch of the target assignment
7     member id            the partitions that the member is to get
8     member id            member epoch, state, partitions that it has and that it is to revoke
16    regular expression   the topics that match it

`record_format` says how they are encoded.
Source: Kafka's ConsumerGroup*Key.json and ConsumerGroup*Value.json (4.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final
from uuid import UUID

from raylog.core.errors import InvariantViolation
from raylog.groupcoord.record_format import RecordFormat, value_api
from raylog.protocol.schema import Api, array, binary, int8, int32, int64, message, string, struct, uuid

GROUP_EPOCH: Final = 3
PARTITION_METADATA: Final = 4
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
MEMBER_TARGET: Final = 7
MEMBER_ASSIGNMENT: Final = 8
REGULAR_EXPRESSION: Final = 16
OF_MEMBER: Final = (MEMBER_ASSIGNMENT, MEMBER_TARGET, MEMBER)
"""The kinds of a member, in the order in which they are deleted."""
_NAMED: Final = frozenset({MEMBER, MEMBER_TARGET, MEMBER_ASSIGNMENT, REGULAR_EXPRESSION})

TopicIdPartition = tuple[UUID, int]
Partitions = frozenset[TopicIdPartition]
NO_PARTITIONS: Final[Partitions] = frozenset()


class MemberState(IntEnum):
    """How far a member has come to its target assignment, with the numbers of Kafka's log."""

    STABLE = 0
    """It has the target assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it gets the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that their previous owners have not revoked yet."""


@dataclass(frozen=True, slots=True)
class GroupEpochBumped:
    """Subscriptions or topics have changed: a new target assignment is needed."""

    group: str
    group_epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """What a member that uses the classic protocol has said in its JoinGroup, for itself."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) of each assignor that it supports."""


@dataclass(frozen=True, slots=True)
class MemberSubscribed:
    """A member has joined, or has changed its subscription."""

    group: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None = None
    """None for a member that uses the consumer protocol."""


@dataclass(frozen=True, slots=True)
class TargetDecided:
    """The target assignments of all members are those of this epoch; follows the MemberTargeted records."""

    group: str
    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class MemberTargeted:
    """The partitions that the member is to get have changed."""

    group: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class MemberAssigned:
    """The member's epoch, state or partitions have changed. It owns the partitions that it is to revoke as well."""

    group: str
    member_id: str
    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    revoking: Partitions


@dataclass(frozen=True, slots=True)
class RegexResolved:
    """The topics that match a regular expression. `version` is the wall clock of the metadata they were found in."""

    group: str
    regex: str
    topic_names: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerRecordDeleted:
    """The tombstone of the record of this kind and name."""

    group: str
    kind: int
    name: str = ""


ConsumerRecord = (
    GroupEpochBumped
    | MemberSubscribed
    | TargetDecided
    | MemberTargeted
    | MemberAssigned
    | RegexResolved
    | ConsumerRecordDeleted
)


# --- the values


@message
class _GroupEpoch:
    api: ClassVar[Api] = value_api("ConsumerGroupMetadataValue")
    epoch: int = int32()
    metadata_hash: int = int64(0, tag=0)


@message
class _ClassicProtocol:
    name: str = string()
    metadata: bytes = binary()


@message
class _ClassicMember:
    session_timeout_ms: int = int32()
    supported_protocols: tuple[_ClassicProtocol, ...] = array(_ClassicProtocol)


@message
class _Member:
    api: ClassVar[Api] = value_api("ConsumerGroupMemberMetadataValue")
    instance_id: str | None = string(None, null_since=0)
    rack_id: str | None = string(None, null_since=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: tuple[str, ...] = array(string)
    subscribed_topic_regex: str | None = string(None, null_since=0)
    rebalance_timeout_ms: int = int32(-1)
    server_assignor: str | None = string(None, null_since=0)
    classic_member_metadata: _ClassicMember | None = struct(_ClassicMember, None, null_since=0, tag=0)


@message
class _TargetEpoch:
    api: ClassVar[Api] = value_api("ConsumerGroupTargetAssignmentMetadataValue")
    assignment_epoch: int = int32()


@message
class TopicPartitions:
    topic_id: UUID = uuid()
    partitions: tuple[int, ...] = array(int32)


@message
class _MemberTarget:
    api: ClassVar[Api] = value_api("ConsumerGroupTargetAssignmentMemberValue")
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions)


@message
class _MemberAssignment:
    api: ClassVar[Api] = value_api("ConsumerGroupCurrentMemberAssignmentValue")
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions)
    partitions_pending_revocation: tuple[TopicPartitions, ...] = array(TopicPartitions)


@message
class _RegularExpression:
    api: ClassVar[Api] = value_api("ConsumerGroupRegularExpressionValue")
    topics: tuple[str, ...] = array(string)
    version: int = int64()
    timestamp: int = int64()


def _parts(record: ConsumerRecord) -> tuple[int, str, Any]:
    match record:
        case ConsumerRecordDeleted():
            return record.kind, record.name, None
        case GroupEpochBumped():
            return GROUP_EPOCH, "", _GroupEpoch(epoch=record.group_epoch, metadata_hash=record.metadata_hash)
        case MemberSubscribed():
            member = _Member(
                instance_id=record.instance_id,
                rack_id=record.rack_id,
                client_id=record.client_id,
                client_host=record.client_host,
                subscribed_topic_names=record.topic_names,
                subscribed_topic_regex=record.topic_regex,
                rebalance_timeout_ms=record.rebalance_timeout_ms,
                server_assignor=record.server_assignor,
                classic_member_metadata=_classic_member(record.classic),
            )
            return MEMBER, record.member_id, member
        case TargetDecided():
            return TARGET_EPOCH, "", _TargetEpoch(assignment_epoch=record.assignment_epoch)
        case MemberTargeted():
            return MEMBER_TARGET, record.member_id, _MemberTarget(topic_partitions=by_topic(record.partitions))
        case MemberAssigned():
            assignment = _MemberAssignment(
                member_epoch=record.member_epoch,
                previous_member_epoch=record.previous_epoch,
                state=record.state,
                assigned_partitions=by_topic(record.assigned),
                partitions_pending_revocation=by_topic(record.revoking),
            )
            return MEMBER_ASSIGNMENT, record.member_id, assignment
        case RegexResolved():
            resolved = _RegularExpression(
                topics=record.topic_names, version=record.version, timestamp=record.timestamp_ms
            )
            return REGULAR_EXPRESSION, record.regex, resolved


def _record(group: str, name: str, value: object) -> ConsumerRecord:
    match value:
        case _GroupEpoch():
            return GroupEpochBumped(group, value.epoch, value.metadata_hash)
        case _Member():
            return MemberSubscribed(
                group,
                name,
                value.instance_id,
                value.rack_id,
                value.client_id,
                value.client_host,
                value.subscribed_topic_names,
                value.subscribed_topic_regex,
                value.rebalance_timeout_ms,
                value.server_assignor,
                _classic_protocols(value.classic_member_metadata),
            )
        case _TargetEpoch():
            return TargetDecided(group, value.assignment_epoch)
        case _MemberTarget():
            return MemberTargeted(group, name, _partitions(value.topic_partitions))
        case _MemberAssignment():
            return MemberAssigned(
                group,
                name,
                value.member_epoch,
                value.previous_member_epoch,
                MemberState(value.state),
                _partitions(value.assigned_partitions),
                _partitions(value.partitions_pending_revocation),
            )
        case _RegularExpression():
            return RegexResolved(group, name, value.topics, value.version, value.timestamp)
    raise InvariantViolation(f"no record has the value {value!r}")


def _classic_member(said: ClassicProtocols | None) -> _ClassicMember | None:
    if said is None:
        return None
    protocols = tuple(_ClassicProtocol(name=name, metadata=metadata) for name, metadata in said.protocols)
    return _ClassicMember(session_timeout_ms=said.session_timeout_ms, supported_protocols=protocols)


def _classic_protocols(kept: _ClassicMember | None) -> ClassicProtocols | None:
    if kept is None:
        return None
    protocols = tuple((each.name, bytes(each.metadata)) for each in kept.supported_protocols)
    return ClassicProtocols(kept.session_timeout_ms, protocols)


def numbers_by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, tuple[int, ...]]:
    """The partition numbers of each topic, in order."""
    numbers: dict[UUID, list[int]] = {}
    for topic_id, number in partitions:
        numbers.setdefault(topic_id, []).append(number)
    return {topic_id: tuple(sorted(numbers[topic_id])) for topic_id in sorted(numbers, key=lambda each: each.int)}


def by_topic(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in numbers_by_topic(partitions).items()
    )


def _partitions(topics: tuple[TopicPartitions, ...]) -> Partitions:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


FORMAT: Final[RecordFormat[ConsumerRecord]] = RecordFormat(
    values={
        GROUP_EPOCH: _GroupEpoch,
        MEMBER: _Member,
        TARGET_EPOCH: _TargetEpoch,
        MEMBER_TARGET: _MemberTarget,
        MEMBER_ASSIGNMENT: _MemberAssignment,
        REGULAR_EXPRESSION: _RegularExpression,
    },
    named=_NAMED,
    parts=_parts,
    record=_record,
    deleted=ConsumerRecordDeleted,
)
