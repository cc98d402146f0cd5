"""ListGroups (key 16). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string

API = Api(key=16, name="ListGroups", lowest=0, highest=5, flexible_from=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsRequest:
    """Asks which groups there are."""

    api: ClassVar[Api] = API
    states_filter: tuple[str, ...] = array(string, since=4)
    types_filter: tuple[str, ...] = array(string, since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """Stands in `ListGroupsResponse.groups`."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsResponse:
    """The groups this broker coordinates."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=1)
    error_code: ErrorCode = error()
    groups: tuple[ListedGroup, ...] = array(ListedGroup)
