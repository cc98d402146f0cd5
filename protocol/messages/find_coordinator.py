"""FindCoordinator (key 10). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, string

API = Api(key=10, name="FindCoordinator", lowest=0, highest=6, flexible_from=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorRequest:
    """Asks which broker coordinates a group or a transaction."""

    api: ClassVar[Api] = API
    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: tuple[str, ...] = array(string, since=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """Stands in `FindCoordinatorResponse.coordinators`, versions 4-6."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponse:
    """The coordinators."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=1)
    error_code: ErrorCode = error(until=3)
    coordinators: tuple[Coordinator, ...] = array(Coordinator, since=4)
    error_message: str | None = string(None, since=1, until=3, null_since=1)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
