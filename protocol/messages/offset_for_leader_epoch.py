"""OffsetForLeaderEpoch (key 23). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, int64, string

API = Api(key=23, name="OffsetForLeaderEpoch", lowest=2, highest=4, flexible_from=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderPartition:
    """Stands in `OffsetForLeaderTopic.partitions`."""

    partition: int = int32()
    current_leader_epoch: int = int32(-1)
    leader_epoch: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopic:
    """Stands in `OffsetForLeaderEpochRequest.topics`."""

    topic: str = string()
    partitions: tuple[OffsetForLeaderPartition, ...] = array(OffsetForLeaderPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    """Asks where leader epochs ended."""

    api: ClassVar[Api] = API
    replica_id: int = int32(-2, since=3)
    topics: tuple[OffsetForLeaderTopic, ...] = array(OffsetForLeaderTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    """Stands in `OffsetForLeaderTopicResult.partitions`."""

    error_code: ErrorCode = error()
    partition: int = int32()
    leader_epoch: int = int32(-1)
    end_offset: int = int64(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    """Stands in `OffsetForLeaderEpochResponse.topics`."""

    topic: str = string()
    partitions: tuple[EpochEndOffset, ...] = array(EpochEndOffset)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    """The end offset of each epoch asked for."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    topics: tuple[OffsetForLeaderTopicResult, ...] = array(OffsetForLeaderTopicResult)
