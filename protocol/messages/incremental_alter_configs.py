"""IncrementalAlterConfigs (key 44). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int8, int32, string

API = Api(key=44, name="IncrementalAlterConfigs", lowest=0, highest=1, flexible_from=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterableConfig:
    """Stands in `AlterConfigsResource.configs`."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResource:
    """Stands in `IncrementalAlterConfigsRequest.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: tuple[AlterableConfig, ...] = array(AlterableConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    """Changes single configurations."""

    api: ClassVar[Api] = API
    resources: tuple[AlterConfigsResource, ...] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    """Stands in `IncrementalAlterConfigsResponse.responses`."""

    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    resource_type: int = int8()
    resource_name: str = string()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResponse:
    """What became of each resource."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    responses: tuple[AlterConfigsResourceResponse, ...] = array(AlterConfigsResourceResponse)
