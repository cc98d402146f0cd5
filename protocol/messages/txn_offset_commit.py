"""TxnOffsetCommit (key 28). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int16, int32, int64, string

API = Api(key=28, name="TxnOffsetCommit", lowest=0, highest=5, flexible_from=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestPartition:
    """Stands in `TxnOffsetCommitRequestTopic.partitions`."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(-1, since=2)
    committed_metadata: str | None = string(None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    """Stands in `TxnOffsetCommitRequest.topics`."""

    name: str = string()
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = array(TxnOffsetCommitRequestPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    """Stores how far a group has read, as part of a transaction."""

    api: ClassVar[Api] = API
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(-1, since=3)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(None, since=3, null_since=3)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = array(TxnOffsetCommitRequestTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition:
    """Stands in `TxnOffsetCommitResponseTopic.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    """Stands in `TxnOffsetCommitResponse.topics`."""

    name: str = string()
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = array(TxnOffsetCommitResponsePartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    """What became of each offset."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = array(TxnOffsetCommitResponseTopic)
