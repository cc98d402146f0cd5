"""OffsetCommit (key 8). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, int64, string, uuid

API = Api(key=8, name="OffsetCommit", lowest=2, highest=10, flexible_from=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    """Stands in `OffsetCommitRequestTopic.partitions`."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(-1, since=6)
    committed_metadata: str | None = string(None, null_since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    """Stands in `OffsetCommitRequest.topics`."""

    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: tuple[OffsetCommitRequestPartition, ...] = array(OffsetCommitRequestPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """Stores how far a group has read."""

    api: ClassVar[Api] = API
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(-1)
    member_id: str = string()
    retention_time_ms: int = int64(-1, until=4)
    group_instance_id: str | None = string(None, since=7, null_since=7)
    topics: tuple[OffsetCommitRequestTopic, ...] = array(OffsetCommitRequestTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    """Stands in `OffsetCommitResponseTopic.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    """Stands in `OffsetCommitResponse.topics`."""

    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: tuple[OffsetCommitResponsePartition, ...] = array(OffsetCommitResponsePartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse:
    """What became of each committed offset."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=3)
    topics: tuple[OffsetCommitResponseTopic, ...] = array(OffsetCommitResponseTopic)
