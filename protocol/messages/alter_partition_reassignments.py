"""AlterPartitionReassignments (key 45). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, string

API = Api(key=45, name="AlterPartitionReassignments", lowest=0, highest=1, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartition:
    """Stands in `ReassignableTopic.partitions`."""

    partition_index: int = int32()
    replicas: tuple[int, ...] | None = array(int32, None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopic:
    """Stands in `AlterPartitionReassignmentsRequest.topics`."""

    name: str = string()
    partitions: tuple[ReassignablePartition, ...] = array(ReassignablePartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    """Moves replicas; null ends what is under way."""

    api: ClassVar[Api] = API
    timeout_ms: int = int32(60000)
    allow_replication_factor_change: bool = boolean(True, since=1)
    topics: tuple[ReassignableTopic, ...] = array(ReassignableTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignablePartitionResponse:
    """Stands in `ReassignableTopicResponse.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignableTopicResponse:
    """Stands in `AlterPartitionReassignmentsResponse.responses`."""

    name: str = string()
    partitions: tuple[ReassignablePartitionResponse, ...] = array(ReassignablePartitionResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    """What became of each partition."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(True, since=1)
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    responses: tuple[ReassignableTopicResponse, ...] = array(ReassignableTopicResponse)
