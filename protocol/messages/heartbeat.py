"""Heartbeat (key 12). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, error, int32, string

API = Api(key=12, name="Heartbeat", lowest=0, highest=4, flexible_from=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A member is alive."""

    api: ClassVar[Api] = API
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(None, since=3, null_since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """Whether it should go on, or join again."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=1)
    error_code: ErrorCode = error()
