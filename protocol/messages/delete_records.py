"""DeleteRecords (key 21). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, int64, string

API = Api(key=21, name="DeleteRecords", lowest=0, highest=2, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartition:
    """Stands in `DeleteRecordsTopic.partitions`."""

    partition_index: int = int32()
    offset: int = int64()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopic:
    """Stands in `DeleteRecordsRequest.topics`."""

    name: str = string()
    partitions: tuple[DeleteRecordsPartition, ...] = array(DeleteRecordsPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequest:
    """Deletes the records before an offset."""

    api: ClassVar[Api] = API
    topics: tuple[DeleteRecordsTopic, ...] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    """Stands in `DeleteRecordsTopicResult.partitions`."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    """Stands in `DeleteRecordsResponse.topics`."""

    name: str = string()
    partitions: tuple[DeleteRecordsPartitionResult, ...] = array(DeleteRecordsPartitionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponse:
    """Where each partition begins now."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    topics: tuple[DeleteRecordsTopicResult, ...] = array(DeleteRecordsTopicResult)
