"""DescribeAcls (key 29). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, string

API = Api(key=29, name="DescribeAcls", lowest=1, highest=3, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsRequest:
    """Asks which access control lists match a filter."""

    api: ClassVar[Api] = API
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(None, null_since=1)
    pattern_type_filter: int = int8(3)
    principal_filter: str | None = string(None, null_since=1)
    host_filter: str | None = string(None, null_since=1)
    operation: int = int8()
    permission_type: int = int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDescription:
    """Stands in `DescribeAclsResource.acls`."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResource:
    """Stands in `DescribeAclsResponse.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(3)
    acls: tuple[AclDescription, ...] = array(AclDescription)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResponse:
    """The matching ones, by resource."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=1)
    resources: tuple[DescribeAclsResource, ...] = array(DescribeAclsResource)
