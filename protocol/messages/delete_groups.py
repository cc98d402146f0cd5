"""DeleteGroups (key 42). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string

API = Api(key=42, name="DeleteGroups", lowest=0, highest=2, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest:
    """Forgets groups and what they have committed."""

    api: ClassVar[Api] = API
    groups_names: tuple[str, ...] = array(string)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult:
    """Stands in `DeleteGroupsResponse.results`."""

    group_id: str = string()
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    """What became of each group."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    results: tuple[DeletableGroupResult, ...] = array(DeletableGroupResult)
