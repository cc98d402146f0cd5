"""InitProducerId (key 22). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, boolean, error, int16, int32, int64, string

API = Api(key=22, name="InitProducerId", lowest=0, highest=6, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """Asks for a producer id and epoch."""

    api: ClassVar[Api] = API
    transactional_id: str | None = string(None, null_since=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(-1, since=3)
    producer_epoch: int = int16(-1, since=3)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    """The id and epoch to write with."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    producer_id: int = int64(-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(-1, since=6)
    ongoing_txn_producer_epoch: int = int16(-1, since=6)
