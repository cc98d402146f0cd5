"""Vote (key 52). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, int64, string, uint16, uuid

API = Api(key=52, name="Vote", lowest=0, highest=2, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPartitionData:
    """Stands in `RequestTopicData.partitions`."""

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: UUID = uuid(since=1)
    voter_directory_id: UUID = uuid(since=1)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean(since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopicData:
    """Stands in `VoteRequest.topics`."""

    topic_name: str = string()
    partitions: tuple[RequestPartitionData, ...] = array(RequestPartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks a voter for its vote."""

    api: ClassVar[Api] = API
    cluster_id: str | None = string(None, null_since=0)
    voter_id: int = int32(-1, since=1)
    topics: tuple[RequestTopicData, ...] = array(RequestTopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """Stands in `VoteResponse.node_endpoints`, versions 1-2."""

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
    vote_granted: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTopicData:
    """Stands in `VoteResponse.topics`."""

    topic_name: str = string()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """Whether it is given, and who leads as the voter knows."""

    api: ClassVar[Api] = API
    error_code: ErrorCode = error()
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, since=1, tag=0)
