"""BrokerHeartbeat (key 63). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, int64, uuid

API = Api(key=63, name="BrokerHeartbeat", lowest=0, highest=2, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    """A broker is alive, and says what it wishes."""

    api: ClassVar[Api] = API
    broker_id: int = int32()
    broker_epoch: int = int64(-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: tuple[UUID, ...] = array(uuid, since=1, tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = array(uuid, None, since=2, null_since=2, tag=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatResponse:
    """What the controller makes of it."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(True)
    should_shut_down: bool = boolean()
