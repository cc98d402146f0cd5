"""ListConfigResources (key 74). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, string

API = Api(key=74, name="ListConfigResources", lowest=0, highest=1, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesRequest:
    """Asks what has a configuration; no types means all."""

    api: ClassVar[Api] = API
    resource_types: tuple[int, ...] = array(int8, since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    """Stands in `ListConfigResourcesResponse.config_resources`."""

    resource_name: str = string()
    resource_type: int = int8(16, since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesResponse:
    """Each resource, type and name."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    config_resources: tuple[ConfigResource, ...] = array(ConfigResource)
