"""JoinGroup (key 11). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, binary, boolean, error, int32, string

API = Api(key=11, name="JoinGroup", lowest=0, highest=9, flexible_from=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    """Stands in `JoinGroupRequest.protocols`."""

    name: str = string()
    metadata: bytes = binary()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    """Asks to be a member, with the assignors it knows."""

    api: ClassVar[Api] = API
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(-1, since=1)
    member_id: str = string()
    group_instance_id: str | None = string(None, since=5, null_since=5)
    protocol_type: str = string()
    protocols: tuple[JoinGroupRequestProtocol, ...] = array(JoinGroupRequestProtocol)
    reason: str | None = string(None, since=8, null_since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponseMember:
    """Stands in `JoinGroupResponse.members`."""

    member_id: str = string()
    group_instance_id: str | None = string(None, since=5, null_since=5)
    metadata: bytes = binary()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    """The generation; for the leader, all members."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=2)
    error_code: ErrorCode = error()
    generation_id: int = int32(-1)
    protocol_type: str | None = string(None, since=7, null_since=7)
    protocol_name: str | None = string(null_since=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: tuple[JoinGroupResponseMember, ...] = array(JoinGroupResponseMember)
