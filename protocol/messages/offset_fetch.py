"""OffsetFetch (key 9). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, int64, string, uuid

API = Api(key=9, name="OffsetFetch", lowest=1, highest=10, flexible_from=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    """Stands in `OffsetFetchRequest.topics`, versions 1-7."""

    name: str = string()
    partition_indexes: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    """Stands in `OffsetFetchRequestGroup.topics`, versions 8-10."""

    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partition_indexes: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    """Stands in `OffsetFetchRequest.groups`, versions 8-10."""

    group_id: str = string()
    member_id: str | None = string(None, since=9, null_since=9)
    member_epoch: int = int32(-1, since=9)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = array(OffsetFetchRequestTopics, None, null_since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """Asks how far groups have read; null means all topics."""

    api: ClassVar[Api] = API
    group_id: str = string(until=7)
    groups: tuple[OffsetFetchRequestGroup, ...] = array(OffsetFetchRequestGroup, since=8)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = array(OffsetFetchRequestTopic, until=7, null_since=2)
    require_stable: bool = boolean(since=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    """Stands in `OffsetFetchResponseTopic.partitions`, versions 1-7."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(-1, since=5)
    metadata: str | None = string(None, null_since=1)
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartitions:
    """Stands in `OffsetFetchResponseTopics.partitions`, versions 8-10."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(-1)
    metadata: str | None = string(None, null_since=8)
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    """Stands in `OffsetFetchResponse.topics`, versions 1-7."""

    name: str = string()
    partitions: tuple[OffsetFetchResponsePartition, ...] = array(OffsetFetchResponsePartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    """Stands in `OffsetFetchResponseGroup.topics`, versions 8-10."""

    name: str = string(until=9)
    topic_id: UUID = uuid(since=10)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = array(OffsetFetchResponsePartitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    """Stands in `OffsetFetchResponse.groups`, versions 8-10."""

    group_id: str = string()
    topics: tuple[OffsetFetchResponseTopics, ...] = array(OffsetFetchResponseTopics)
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    """The committed offsets."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=3)
    topics: tuple[OffsetFetchResponseTopic, ...] = array(OffsetFetchResponseTopic, until=7)
    groups: tuple[OffsetFetchResponseGroup, ...] = array(OffsetFetchResponseGroup, since=8)
    error_code: ErrorCode = error(since=2, until=7)
