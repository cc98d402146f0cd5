"""Produce (key 0), versions 3-13: the record batches pass through as views of the frame they came in.

v5 log_start_offset; v8 record_errors and error_message (KIP-467); v9 flexible; v10 leader hints (KIP-951);
v13 topics by id (KIP-516). Older versions carried other record formats and are advertised, but not served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol import codec
from raylog.protocol.leader_hint import LeaderIdAndEpoch, NodeEndpoint
from raylog.protocol.schema import Api, array, error, int16, int32, int64, message, record_set, string, struct, uuid
from raylog.protocol.wire import Buffer

API = Api(key=0, name="Produce", lowest=3, highest=13, flexible_from=9)


@message
class ProducePartition:
    """Record batches for one partition: a view of the decoded frame, writable if the frame is; None if absent."""

    index: int = int32()
    records: memoryview | None = record_set(null_since=3)


@message
class ProduceTopic:
    """An item of `ProduceRequest.topics`; identified by `name` up to v12, by `topic_id` from v13."""

    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: Sequence[ProducePartition] = array(ProducePartition)


@message
class ProduceRequest:
    """Appends record batches; `acks` is 0 (no response), 1 (the leader) or -1 (the in-sync replicas)."""

    api: ClassVar[Api] = API
    transactional_id: str | None = string(None, null_since=3)
    acks: int = int16()
    timeout_ms: int = int32()
    topics: Sequence[ProduceTopic] = array(ProduceTopic)


@message
class RecordError:
    """Why the batch was rejected because of the record at `batch_index` in it."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(None, null_since=8)


@message
class ProducePartitionResponse:
    """The result for one partition; `base_offset` is the first assigned offset, -1 on error."""

    index: int = int32()
    error_code: ErrorCode = error()
    base_offset: int = int64(-1)
    log_append_time_ms: int = int64(-1)
    log_start_offset: int = int64(-1, since=5)
    record_errors: Sequence[RecordError] = array(RecordError, since=8)
    error_message: str | None = string(None, since=8, null_since=8)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0)


@message
class ProduceTopicResponse:
    """An item of `ProduceResponse.responses`; identified by `name` up to v12, by `topic_id` from v13."""

    name: str = string(until=12)
    topic_id: UUID = uuid(since=13)
    partitions: Sequence[ProducePartitionResponse] = array(ProducePartitionResponse)


@message
class ProduceResponse:
    """The results of all partitions."""

    api: ClassVar[Api] = API
    responses: Sequence[ProduceTopicResponse] = array(ProduceTopicResponse)
    throttle_time_ms: int = int32()
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)


def decode_produce_request(version: int, buffer: Buffer, position: int = 0) -> ProduceRequest:
    """The request in `buffer`, its records as views of `buffer` that live as long as it does.

    Raises ProtocolViolation. Batches are not validated here; `protocol.records` does that.
    """
    return codec.decode(ProduceRequest, version, memoryview(buffer), position)


def encode_produce_request(version: int, request: ProduceRequest) -> list[Buffer]:
    """The body as buffers to be sent in order; records of 4 KiB and more are not copied."""
    return codec.encode_buffers(request, version)


def encode_produce_response(version: int, response: ProduceResponse) -> bytes:
    return codec.encode(response, version)


def decode_produce_response(version: int, buffer: Buffer, position: int = 0) -> ProduceResponse:
    return codec.decode(ProduceResponse, version, buffer, position)
