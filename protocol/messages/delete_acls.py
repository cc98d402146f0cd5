"""DeleteAcls (key 31). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, string

API = Api(key=31, name="DeleteAcls", lowest=1, highest=3, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsFilter:
    """Stands in `DeleteAclsRequest.filters`."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(None, null_since=1)
    pattern_type_filter: int = int8(3)
    principal_filter: str | None = string(None, null_since=1)
    host_filter: str | None = string(None, null_since=1)
    operation: int = int8()
    permission_type: int = int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsRequest:
    """Removes every entry that one of the filters matches."""

    api: ClassVar[Api] = API
    filters: tuple[DeleteAclsFilter, ...] = array(DeleteAclsFilter)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsMatchingAcl:
    """Stands in `DeleteAclsFilterResult.matching_acls`."""

    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=1)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsFilterResult:
    """Stands in `DeleteAclsResponse.filter_results`."""

    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=1)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = array(DeleteAclsMatchingAcl)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResponse:
    """What each filter has removed."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    filter_results: tuple[DeleteAclsFilterResult, ...] = array(DeleteAclsFilterResult)
