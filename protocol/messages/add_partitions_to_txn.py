"""AddPartitionsToTxn (key 24). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int16, int32, int64, string

API = Api(key=24, name="AddPartitionsToTxn", lowest=0, highest=5, flexible_from=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopic:
    """Stands in `AddPartitionsToTxnRequest.v3_and_below_topics`."""

    name: str = string()
    partitions: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTransaction:
    """Stands in `AddPartitionsToTxnRequest.transactions`, versions 4-5."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnRequest:
    """Adds partitions to transactions, or asks if they are in."""

    api: ClassVar[Api] = API
    v3_and_below_transactional_id: str = string(until=3)
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = array(AddPartitionsToTxnTopic, until=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnPartitionResult:
    """Stands in `AddPartitionsToTxnTopicResult.results_by_partition`."""

    partition_index: int = int32()
    partition_error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnTopicResult:
    """Stands in `AddPartitionsToTxnResponse.results_by_topic_v3_and_below`."""

    name: str = string()
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = array(AddPartitionsToTxnPartitionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResult:
    """Stands in `AddPartitionsToTxnResponse.results_by_transaction`, versions 4-5."""

    transactional_id: str = string()
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = array(AddPartitionsToTxnTopicResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponse:
    """Whether they are in."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = array(
        AddPartitionsToTxnTopicResult, until=3
    )
    error_code: ErrorCode = error(since=4)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = array(AddPartitionsToTxnResult, since=4)
