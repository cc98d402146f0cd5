"""CreateAcls (key 30). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, string

API = Api(key=30, name="CreateAcls", lowest=1, highest=3, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreation:
    """Stands in `CreateAclsRequest.creations`."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequest:
    """Adds entries to access control lists."""

    api: ClassVar[Api] = API
    creations: tuple[AclCreation, ...] = array(AclCreation)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreationResult:
    """Stands in `CreateAclsResponse.results`."""

    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsResponse:
    """What became of each entry."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    results: tuple[AclCreationResult, ...] = array(AclCreationResult)
