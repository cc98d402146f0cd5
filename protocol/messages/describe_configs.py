"""DescribeConfigs (key 32). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int8, int32, string

API = Api(key=32, name="DescribeConfigs", lowest=1, highest=4, flexible_from=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResource:
    """Stands in `DescribeConfigsRequest.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: tuple[str, ...] | None = array(string, null_since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest:
    """Asks for configurations; null means all keys."""

    api: ClassVar[Api] = API
    resources: tuple[DescribeConfigsResource, ...] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsSynonym:
    """Stands in `DescribeConfigsResourceResult.synonyms`."""

    name: str = string()
    value: str | None = string(None, null_since=1)
    source: int = int8()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    """Stands in `DescribeConfigsResult.configs`."""

    name: str = string()
    value: str | None = string(None, null_since=1)
    read_only: bool = boolean()
    config_source: int = int8(-1)
    is_sensitive: bool = boolean()
    synonyms: tuple[DescribeConfigsSynonym, ...] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3)
    documentation: str | None = string(None, since=3, null_since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResult:
    """Stands in `DescribeConfigsResponse.results`."""

    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=1)
    resource_type: int = int8()
    resource_name: str = string()
    configs: tuple[DescribeConfigsResourceResult, ...] = array(DescribeConfigsResourceResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponse:
    """Values, and where each came from."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    results: tuple[DescribeConfigsResult, ...] = array(DescribeConfigsResult)
