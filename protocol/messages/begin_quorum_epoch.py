"""BeginQuorumEpoch (key 53). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string, uint16, uuid

API = Api(key=53, name="BeginQuorumEpoch", lowest=0, highest=1, flexible_from=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEndpoint:
    """Stands in `BeginQuorumEpochRequest.leader_endpoints`, versions 1-1."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPartitionData:
    """Stands in `RequestTopicData.partitions`."""

    partition_index: int = int32()
    voter_directory_id: UUID = uuid(since=1)
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopicData:
    """Stands in `BeginQuorumEpochRequest.topics`."""

    topic_name: str = string()
    partitions: tuple[RequestPartitionData, ...] = array(RequestPartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A voter tells another that it leads."""

    api: ClassVar[Api] = API
    cluster_id: str | None = string(None, null_since=0)
    voter_id: int = int32(-1, since=1)
    topics: tuple[RequestTopicData, ...] = array(RequestTopicData)
    leader_endpoints: tuple[LeaderEndpoint, ...] = array(LeaderEndpoint, since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """Stands in `BeginQuorumEpochResponse.node_endpoints`, versions 1-1."""

    node_id: int = int32()
    host: str = string()
    port: int = uint16()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePartitionData:
    """Stands in `ResponseTopicData.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTopicData:
    """Stands in `BeginQuorumEpochResponse.topics`."""

    topic_name: str = string()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse:
    """The epoch that the other one is in."""

    api: ClassVar[Api] = API
    error_code: ErrorCode = error()
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, since=1, tag=0)
