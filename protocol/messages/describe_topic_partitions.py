"""DescribeTopicPartitions (key 75). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, string, struct, uuid

API = Api(key=75, name="DescribeTopicPartitions", lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """Stands in `DescribeTopicPartitionsRequest.topics`."""

    name: str = string()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Stands in `DescribeTopicPartitionsRequest.cursor`."""

    topic_name: str = string()
    partition_index: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsRequest:
    """Asks for the partitions of topics; none named means all."""

    api: ClassVar[Api] = API
    topics: tuple[TopicRequest, ...] = array(TopicRequest)
    response_partition_limit: int = int32(2000)
    cursor: Cursor | None = struct(Cursor, None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponsePartition:
    """Stands in `DescribeTopicPartitionsResponseTopic.partitions`."""

    error_code: ErrorCode = error()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(-1)
    replica_nodes: tuple[int, ...] = array(int32)
    isr_nodes: tuple[int, ...] = array(int32)
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, None, null_since=0)
    last_known_elr: tuple[int, ...] | None = array(int32, None, null_since=0)
    offline_replicas: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponseTopic:
    """Stands in `DescribeTopicPartitionsResponse.topics`."""

    error_code: ErrorCode = error()
    name: str | None = string(None, null_since=0)
    topic_id: UUID = uuid()
    is_internal: bool = boolean()
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(-2147483648)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsResponse:
    """A page of them."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, None, null_since=0)
