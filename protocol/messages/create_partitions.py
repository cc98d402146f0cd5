"""CreatePartitions (key 37). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, string

API = Api(key=37, name="CreatePartitions", lowest=0, highest=3, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsAssignment:
    """Stands in `CreatePartitionsTopic.assignments`."""

    broker_ids: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopic:
    """Stands in `CreatePartitionsRequest.topics`."""

    name: str = string()
    count: int = int32()
    assignments: tuple[CreatePartitionsAssignment, ...] | None = array(CreatePartitionsAssignment, None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest:
    """Grows topics to more partitions."""

    api: ClassVar[Api] = API
    topics: tuple[CreatePartitionsTopic, ...] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    """Stands in `CreatePartitionsResponse.results`."""

    name: str = string()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse:
    """What became of each topic."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    results: tuple[CreatePartitionsTopicResult, ...] = array(CreatePartitionsTopicResult)
