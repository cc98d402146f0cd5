"""ListTransactions (key 66). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, int64, string

API = Api(key=66, name="ListTransactions", lowest=0, highest=2, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsRequest:
    """Asks which transactions there are."""

    api: ClassVar[Api] = API
    state_filters: tuple[str, ...] = array(string)
    producer_id_filters: tuple[int, ...] = array(int64)
    duration_filter: int = int64(-1, since=1)
    transactional_id_pattern: str | None = string(None, since=2, null_since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """Stands in `ListTransactionsResponse.transaction_states`."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsResponse:
    """Those that this broker coordinates."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    unknown_state_filters: tuple[str, ...] = array(string)
    transaction_states: tuple[TransactionState, ...] = array(TransactionState)
