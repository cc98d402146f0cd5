"""LeaveGroup (key 13). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string

API = Api(key=13, name="LeaveGroup", lowest=0, highest=5, flexible_from=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """Stands in `LeaveGroupRequest.members`, versions 3-5."""

    member_id: str = string()
    group_instance_id: str | None = string(None, null_since=3)
    reason: str | None = string(None, since=5, null_since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    """Members go."""

    api: ClassVar[Api] = API
    group_id: str = string()
    member_id: str = string(until=2)
    members: tuple[MemberIdentity, ...] = array(MemberIdentity, since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberResponse:
    """Stands in `LeaveGroupResponse.members`, versions 3-5."""

    member_id: str = string()
    group_instance_id: str | None = string(None, null_since=3)
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """What became of each of them."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=1)
    error_code: ErrorCode = error()
    members: tuple[MemberResponse, ...] = array(MemberResponse, since=3)
