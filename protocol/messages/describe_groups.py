"""DescribeGroups (key 15). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, binary, boolean, error, int32, string

API = Api(key=15, name="DescribeGroups", lowest=0, highest=6, flexible_from=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsRequest:
    """Asks for the state and the members of groups."""

    api: ClassVar[Api] = API
    groups: tuple[str, ...] = array(string)
    include_authorized_operations: bool = boolean(since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroupMember:
    """Stands in `DescribedGroup.members`."""

    member_id: str = string()
    group_instance_id: str | None = string(None, since=4, null_since=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """Stands in `DescribeGroupsResponse.groups`."""

    error_code: ErrorCode = error()
    error_message: str | None = string(None, since=6, null_since=6)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: tuple[DescribedGroupMember, ...] = array(DescribedGroupMember)
    authorized_operations: int = int32(-2147483648, since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResponse:
    """One answer for each group."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=1)
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup)
