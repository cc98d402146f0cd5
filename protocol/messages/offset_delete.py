"""OffsetDelete (key 47). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string

API = Api(key=47, name="OffsetDelete", lowest=0, highest=0, flexible_from=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    """Stands in `OffsetDeleteRequestTopic.partitions`."""

    partition_index: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    """Stands in `OffsetDeleteRequest.topics`."""

    name: str = string()
    partitions: tuple[OffsetDeleteRequestPartition, ...] = array(OffsetDeleteRequestPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequest:
    """Forgets what a group has committed in partitions."""

    api: ClassVar[Api] = API
    group_id: str = string()
    topics: tuple[OffsetDeleteRequestTopic, ...] = array(OffsetDeleteRequestTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    """Stands in `OffsetDeleteResponseTopic.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    """Stands in `OffsetDeleteResponse.topics`."""

    name: str = string()
    partitions: tuple[OffsetDeleteResponsePartition, ...] = array(OffsetDeleteResponsePartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponse:
    """What became of each partition."""

    api: ClassVar[Api] = API
    error_code: ErrorCode = error()
    throttle_time_ms: int = int32()
    topics: tuple[OffsetDeleteResponseTopic, ...] = array(OffsetDeleteResponseTopic)
