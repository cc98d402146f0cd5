"""DescribeProducers (key 61). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, int64, string

API = Api(key=61, name="DescribeProducers", lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """Stands in `DescribeProducersRequest.topics`."""

    name: str = string()
    partition_indexes: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersRequest:
    """Asks who has written to partitions."""

    api: ClassVar[Api] = API
    topics: tuple[TopicRequest, ...] = array(TopicRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """Stands in `PartitionResponse.active_producers`."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(-1)
    last_timestamp: int = int64(-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResponse:
    """Stands in `TopicResponse.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    active_producers: tuple[ProducerState, ...] = array(ProducerState)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResponse:
    """Stands in `DescribeProducersResponse.topics`."""

    name: str = string()
    partitions: tuple[PartitionResponse, ...] = array(PartitionResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersResponse:
    """The producers that each partition remembers."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    topics: tuple[TopicResponse, ...] = array(TopicResponse)
