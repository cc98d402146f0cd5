"""Fetch (key 1), versions 4-18: record batches are sent as the log's buffers, and decoded as views of the frame.

v5 log_start_offset; v7 fetch sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack and preferred replica (KIP-392);
v12 flexible, diverging epochs (KIP-595); v13 topics by id (KIP-516); v15 replica state as a tagged field (KIP-903);
v16 leader hints (KIP-951); v17 replica directories (KIP-853); v18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID
from raylog.protocol import codec
from raylog.protocol.leader_hint import LeaderIdAndEpoch, NodeEndpoint
from raylog.protocol.schema import Api, array, error, int8, int32, int64, message, record_buffers, string, struct, uuid
from raylog.protocol.wire import Buffer

API = Api(key=1, name="Fetch", lowest=4, highest=18, flexible_from=12)

REPLICA_STATE_SINCE: Final = 15
UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1
"""The fetcher does not send its high watermark: consumers, and followers below v18."""


@message
class FetchPartition:
    """One partition and the offset to read from; the epochs are -1 if the reader does not track them."""

    partition: int = int32()
    current_leader_epoch: int = int32(-1, since=9)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(-1, since=12)
    log_start_offset: int = int64(-1, since=5)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid(since=17, tag=0)
    high_watermark: int = int64(UNKNOWN_HIGH_WATERMARK, since=18, tag=1)


@message
class FetchTopic:
    """An item of `FetchRequest.topics`; identified by `name` up to v12, by `topic_id` from v13."""

    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: Sequence[FetchPartition] = array(FetchPartition)


@message
class ForgottenTopic:
    """Partitions to remove from the fetch session."""

    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: Sequence[int] = array(int32)


@message
class ReplicaState:
    """The follower that fetches, and its broker epoch; -1 for a consumer."""

    replica_id: int = int32(-1)
    replica_epoch: int = int64(-1)


@message
class FetchRequest:
    """Reads record batches; waits up to `max_wait_ms` for `min_bytes`.

    `replica_id` holds in every version (-1 for a consumer, -2 for one that compares replicas); `replica_state` adds the
    broker epoch from v15 on.
    """

    api: ClassVar[Api] = API
    replica_id: int = int32(-1, until=REPLICA_STATE_SINCE - 1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(2**31 - 1)
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(-1, since=7)
    topics: Sequence[FetchTopic] = array(FetchTopic)
    forgotten_topics: Sequence[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11)
    cluster_id: str | None = string(None, since=12, null_since=12, tag=0)
    replica_state: ReplicaState = struct(ReplicaState, since=REPLICA_STATE_SINCE, tag=1)

    @property
    def from_follower(self) -> bool:
        return self.replica_id >= 0


@message
class AbortedTransaction:
    """A transaction in the range that was aborted: skip this producer's records from `first_offset` to its marker."""

    producer_id: int = int64()
    first_offset: int = int64()


@message
class EpochEndOffset:
    """The largest epoch, and its end, up to which the follower's log can agree with the leader's."""

    epoch: int = int32(-1)
    end_offset: int = int64(-1)


@message
class SnapshotId:
    """The metadata snapshot to fetch in place of a log that starts too late; unused by raylog."""

    end_offset: int = int64(-1)
    epoch: int = int32(-1)


@message
class FetchPartitionResponse:
    """The result for one partition. `records` are buffers to be sent in order; decoded, one view of the frame.

    `diverging_epoch`, `current_leader` and `snapshot_id` are omitted if they have their default value.
    """

    partition_index: int = int32()
    error_code: ErrorCode = error()
    high_watermark: int = int64(-1)
    last_stable_offset: int = int64(-1)
    log_start_offset: int = int64(-1, since=5)
    aborted_transactions: Sequence[AbortedTransaction] | None = array(AbortedTransaction, None, null_since=4)
    preferred_read_replica: int = int32(-1, since=11)
    records: Sequence[Buffer] | None = record_buffers(null_since=4)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, since=12, tag=2)


@message
class FetchTopicResponse:
    """An item of `FetchResponse.responses`; identified by `name` up to v12, by `topic_id` from v13."""

    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: Sequence[FetchPartitionResponse] = array(FetchPartitionResponse)


@message
class FetchResponse:
    """The batches read, partition by partition."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error(since=7)
    session_id: int = int32(since=7)
    responses: Sequence[FetchTopicResponse] = array(FetchTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)


def decode_fetch_request(version: int, buffer: Buffer, position: int = 0) -> FetchRequest:
    """The request in `buffer`, with `replica_id` set in every version. Raises ProtocolViolation."""
    request = codec.decode(FetchRequest, version, buffer, position)
    if request.replica_state.replica_id != NO_BROKER_ID:
        return replace(request, replica_id=request.replica_state.replica_id)
    return request


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body; from v15 on `replica_id` is sent in `replica_state`, with the epoch given there."""
    if version >= REPLICA_STATE_SINCE and request.replica_id != request.replica_state.replica_id:
        request = replace(request, replica_state=replace(request.replica_state, replica_id=request.replica_id))
    return codec.encode(request, version)


def encode_fetch_response(version: int, response: FetchResponse) -> list[Buffer]:
    """The body as buffers to be sent in order; records of 4 KiB and more are not copied."""
    return codec.encode_buffers(response, version)


def decode_fetch_response(version: int, buffer: Buffer, position: int = 0) -> FetchResponse:
    """The response in `buffer`, its records as views of `buffer`. Raises ProtocolViolation."""
    return codec.decode(FetchResponse, version, memoryview(buffer), position)
