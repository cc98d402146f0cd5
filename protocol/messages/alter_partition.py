"""AlterPartition (key 56). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, int64, uuid

API = Api(key=56, name="AlterPartition", lowest=2, highest=3, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """Stands in `RequestPartitionData.new_isr_with_epochs`, versions 3-3."""

    broker_id: int = int32()
    broker_epoch: int = int64(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPartitionData:
    """Stands in `RequestTopicData.partitions`."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: tuple[int, ...] = array(int32, until=2)
    new_isr_with_epochs: tuple[BrokerState, ...] = array(BrokerState, since=3)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopicData:
    """Stands in `AlterPartitionRequest.topics`."""

    topic_id: UUID = uuid()
    partitions: tuple[RequestPartitionData, ...] = array(RequestPartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest:
    """A leader proposes who is in sync."""

    api: ClassVar[Api] = API
    broker_id: int = int32()
    broker_epoch: int = int64(-1)
    topics: tuple[RequestTopicData, ...] = array(RequestTopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePartitionData:
    """Stands in `ResponseTopicData.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: tuple[int, ...] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTopicData:
    """Stands in `AlterPartitionResponse.topics`."""

    topic_id: UUID = uuid()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse:
    """The partitions as they stand now."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
