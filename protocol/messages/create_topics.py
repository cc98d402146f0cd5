"""CreateTopics (key 19). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int8, int16, int32, string, uuid

API = Api(key=19, name="CreateTopics", lowest=2, highest=7, flexible_from=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableReplicaAssignment:
    """Stands in `CreatableTopic.assignments`."""

    partition_index: int = int32()
    broker_ids: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfig:
    """Stands in `CreatableTopic.configs`."""

    name: str = string()
    value: str | None = string(None, null_since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    """Stands in `CreateTopicsRequest.topics`."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: tuple[CreatableReplicaAssignment, ...] = array(CreatableReplicaAssignment)
    configs: tuple[CreatableTopicConfig, ...] = array(CreatableTopicConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest:
    """Creates topics, or only checks that it could."""

    api: ClassVar[Api] = API
    topics: tuple[CreatableTopic, ...] = array(CreatableTopic)
    timeout_ms: int = int32(60000)
    validate_only: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicConfigs:
    """Stands in `CreatableTopicResult.configs`, versions 5-7."""

    name: str = string()
    value: str | None = string(None, null_since=5)
    read_only: bool = boolean()
    config_source: int = int8(-1)
    is_sensitive: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResult:
    """Stands in `CreateTopicsResponse.topics`."""

    name: str = string()
    topic_id: UUID = uuid(since=7)
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=2)
    num_partitions: int = int32(-1, since=5)
    replication_factor: int = int16(-1, since=5)
    configs: tuple[CreatableTopicConfigs, ...] | None = array(CreatableTopicConfigs, None, since=5, null_since=5)
    topic_config_error_code: int = int16(since=5, tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse:
    """What became of each topic."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    topics: tuple[CreatableTopicResult, ...] = array(CreatableTopicResult)
