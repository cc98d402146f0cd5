"""UnregisterBroker (key 64). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, error, int32, string

API = Api(key=64, name="UnregisterBroker", lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRequest:
    """Forgets a broker that is gone for good."""

    api: ClassVar[Api] = API
    broker_id: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerResponse:
    """What became of it."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
