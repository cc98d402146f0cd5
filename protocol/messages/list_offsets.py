"""ListOffsets (key 2). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, int64, string

API = Api(key=2, name="ListOffsets", lowest=1, highest=11, flexible_from=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartition:
    """Stands in `ListOffsetsTopic.partitions`."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(-1, since=4)
    timestamp: int = int64()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopic:
    """Stands in `ListOffsetsRequest.topics`."""

    name: str = string()
    partitions: tuple[ListOffsetsPartition, ...] = array(ListOffsetsPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest:
    """Asks for the offset at a time, at the start or at the end of partitions."""

    api: ClassVar[Api] = API
    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: tuple[ListOffsetsTopic, ...] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsPartitionResponse:
    """Stands in `ListOffsetsTopicResponse.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    timestamp: int = int64(-1)
    offset: int = int64(-1)
    leader_epoch: int = int32(-1, since=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsTopicResponse:
    """Stands in `ListOffsetsResponse.topics`."""

    name: str = string()
    partitions: tuple[ListOffsetsPartitionResponse, ...] = array(ListOffsetsPartitionResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    """One offset each."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=2)
    topics: tuple[ListOffsetsTopicResponse, ...] = array(ListOffsetsTopicResponse)
