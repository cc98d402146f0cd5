"""DescribeQuorum (key 55). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, int64, string, uint16, uuid

API = Api(key=55, name="DescribeQuorum", lowest=0, highest=2, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPartitionData:
    """Stands in `RequestTopicData.partitions`."""

    partition_index: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopicData:
    """Stands in `DescribeQuorumRequest.topics`."""

    topic_name: str = string()
    partitions: tuple[RequestPartitionData, ...] = array(RequestPartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumRequest:
    """Asks who keeps the metadata log."""

    api: ClassVar[Api] = API
    topics: tuple[RequestTopicData, ...] = array(RequestTopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """Stands in `ResponsePartitionData.current_voters`."""

    replica_id: int = int32()
    replica_directory_id: UUID = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(-1, since=1)
    last_caught_up_timestamp: int = int64(-1, since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Stands in `Node.listeners`, versions 2-2."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePartitionData:
    """Stands in `ResponseTopicData.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, since=2, null_since=2)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: tuple[ReplicaState, ...] = array(ReplicaState)
    observers: tuple[ReplicaState, ...] = array(ReplicaState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Stands in `DescribeQuorumResponse.nodes`, versions 2-2."""

    node_id: int = int32()
    listeners: tuple[Listener, ...] = array(Listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTopicData:
    """Stands in `DescribeQuorumResponse.topics`."""

    topic_name: str = string()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponse:
    """Its leader, its voters, and who follows it."""

    api: ClassVar[Api] = API
    error_code: ErrorCode = error()
    error_message: str | None = string(None, since=2, null_since=2)
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
    nodes: tuple[Node, ...] = array(Node, since=2)
