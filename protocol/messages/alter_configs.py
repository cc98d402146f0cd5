"""AlterConfigs (key 33). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int8, int32, string

API = Api(key=33, name="AlterConfigs", lowest=0, highest=2, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterableConfig:
    """Stands in `AlterConfigsResource.configs`."""

    name: str = string()
    value: str | None = string(None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResource:
    """Stands in `AlterConfigsRequest.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: tuple[AlterableConfig, ...] = array(AlterableConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsRequest:
    """Sets whole configurations."""

    api: ClassVar[Api] = API
    resources: tuple[AlterConfigsResource, ...] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    """Stands in `AlterConfigsResponse.responses`."""

    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    resource_type: int = int8()
    resource_name: str = string()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResponse:
    """What became of each resource."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse)
