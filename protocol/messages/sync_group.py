"""SyncGroup (key 14). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, binary, error, int32, string

API = Api(key=14, name="SyncGroup", lowest=0, highest=5, flexible_from=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    """Stands in `SyncGroupRequest.assignments`."""

    member_id: str = string()
    assignment: bytes = binary()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    """Asks for its part; the leader brings everybody's."""

    api: ClassVar[Api] = API
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(None, since=3, null_since=3)
    protocol_type: str | None = string(None, since=5, null_since=5)
    protocol_name: str | None = string(None, since=5, null_since=5)
    assignments: tuple[SyncGroupRequestAssignment, ...] = array(SyncGroupRequestAssignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """The member's part."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=1)
    error_code: ErrorCode = error()
    protocol_type: str | None = string(None, since=5, null_since=5)
    protocol_name: str | None = string(None, since=5, null_since=5)
    assignment: bytes = binary()
