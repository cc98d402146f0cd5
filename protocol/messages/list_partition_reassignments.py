"""ListPartitionReassignments (key 46). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string

API = Api(key=46, name="ListPartitionReassignments", lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsTopics:
    """Stands in `ListPartitionReassignmentsRequest.topics`."""

    name: str = string()
    partition_indexes: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    """Asks which replicas are moving; null means everywhere."""

    api: ClassVar[Api] = API
    timeout_ms: int = int32(60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = array(
        ListPartitionReassignmentsTopics, None, null_since=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingPartitionReassignment:
    """Stands in `OngoingTopicReassignment.partitions`."""

    partition_index: int = int32()
    replicas: tuple[int, ...] = array(int32)
    adding_replicas: tuple[int, ...] = array(int32)
    removing_replicas: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingTopicReassignment:
    """Stands in `ListPartitionReassignmentsResponse.topics`."""

    name: str = string()
    partitions: tuple[OngoingPartitionReassignment, ...] = array(OngoingPartitionReassignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    """What is under way."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    topics: tuple[OngoingTopicReassignment, ...] = array(OngoingTopicReassignment)
