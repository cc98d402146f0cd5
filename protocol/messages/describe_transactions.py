"""DescribeTransactions (key 65). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int16, int32, int64, string

API = Api(key=65, name="DescribeTransactions", lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsRequest:
    """Asks for the state of transactions."""

    api: ClassVar[Api] = API
    transactional_ids: tuple[str, ...] = array(string)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData:
    """Stands in `TransactionState.topics`."""

    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """Stands in `DescribeTransactionsResponse.transaction_states`."""

    error_code: ErrorCode = error()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: tuple[TopicData, ...] = array(TopicData)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse:
    """One answer for each transactional id."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    transaction_states: tuple[TransactionState, ...] = array(TransactionState)
