"""FetchSnapshot (key 59). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, binary, error, int32, int64, string, struct, uint16, uuid

API = Api(key=59, name="FetchSnapshot", lowest=0, highest=1, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotId:
    """Stands in `RequestPartitionSnapshot.snapshot_id`."""

    end_offset: int = int64()
    epoch: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPartitionSnapshot:
    """Stands in `RequestTopicSnapshot.partitions`."""

    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: UUID = uuid(since=1, tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopicSnapshot:
    """Stands in `FetchSnapshotRequest.topics`."""

    name: str = string()
    partitions: tuple[RequestPartitionSnapshot, ...] = array(RequestPartitionSnapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """Asks for a piece of a snapshot of the metadata."""

    api: ClassVar[Api] = API
    replica_id: int = int32(-1)
    max_bytes: int = int32(2147483647)
    topics: tuple[RequestTopicSnapshot, ...] = array(RequestTopicSnapshot)
    cluster_id: str | None = string(None, null_since=0, tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """Stands in `FetchSnapshotResponse.node_endpoints`, versions 1-1."""

    node_id: int = int32()
    host: str = string()
    port: int = uint16()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    """Stands in `ResponsePartitionSnapshot.current_leader`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePartitionSnapshot:
    """Stands in `ResponseTopicSnapshot.partitions`."""

    index: int = int32()
    error_code: ErrorCode = error()
    snapshot_id: SnapshotId = struct(SnapshotId)
    size: int = int64()
    position: int = int64()
    unaligned_records: bytes = binary()
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTopicSnapshot:
    """Stands in `FetchSnapshotResponse.topics`."""

    name: str = string()
    partitions: tuple[ResponsePartitionSnapshot, ...] = array(ResponsePartitionSnapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    """The piece, and the size of the whole."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    topics: tuple[ResponseTopicSnapshot, ...] = array(ResponseTopicSnapshot)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, since=1, tag=0)
