"""EndTxn (key 26). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, boolean, error, int16, int32, int64, string

API = Api(key=26, name="EndTxn", lowest=0, highest=5, flexible_from=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnRequest:
    """Commits or aborts a transaction."""

    api: ClassVar[Api] = API
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnResponse:
    """Whether it is decided."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    producer_id: int = int64(-1, since=5)
    producer_epoch: int = int16(-1, since=5)
