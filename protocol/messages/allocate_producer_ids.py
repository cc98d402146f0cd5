"""AllocateProducerIds (key 67). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, error, int32, int64

API = Api(key=67, name="AllocateProducerIds", lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsRequest:
    """A broker asks for a block of producer ids."""

    api: ClassVar[Api] = API
    broker_id: int = int32()
    broker_epoch: int = int64(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsResponse:
    """The block."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
