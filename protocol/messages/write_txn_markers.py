"""WriteTxnMarkers (key 27). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int8, int16, int32, int64, string

API = Api(key=27, name="WriteTxnMarkers", lowest=1, highest=2, flexible_from=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopic:
    """Stands in `WritableTxnMarker.topics`."""

    name: str = string()
    partition_indexes: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarker:
    """Stands in `WriteTxnMarkersRequest.markers`."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: tuple[WritableTxnMarkerTopic, ...] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersRequest:
    """A coordinator tells leaders how transactions ended."""

    api: ClassVar[Api] = API
    markers: tuple[WritableTxnMarker, ...] = array(WritableTxnMarker)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult:
    """Stands in `WritableTxnMarkerTopicResult.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopicResult:
    """Stands in `WritableTxnMarkerResult.topics`."""

    name: str = string()
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = array(WritableTxnMarkerPartitionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerResult:
    """Stands in `WriteTxnMarkersResponse.markers`."""

    producer_id: int = int64()
    topics: tuple[WritableTxnMarkerTopicResult, ...] = array(WritableTxnMarkerTopicResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersResponse:
    """Which partitions know."""

    api: ClassVar[Api] = API
    markers: tuple[WritableTxnMarkerResult, ...] = array(WritableTxnMarkerResult)
