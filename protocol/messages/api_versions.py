"""ApiVersions (key 18). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int16, int32, int64, string

API = Api(key=18, name="ApiVersions", lowest=0, highest=4, flexible_from=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """First request of a connection: who is calling?"""

    api: ClassVar[Api] = API
    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    """Stands in `ApiVersionsResponse.api_keys`."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeatureKey:
    """Stands in `ApiVersionsResponse.supported_features`, versions 3-4."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatureKey:
    """Stands in `ApiVersionsResponse.finalized_features`, versions 3-4."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """The APIs and versions that are served."""

    api: ClassVar[Api] = API
    error_code: ErrorCode = error()
    api_keys: tuple[ApiVersion, ...] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: tuple[SupportedFeatureKey, ...] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(-1, since=3, tag=1)
    finalized_features: tuple[FinalizedFeatureKey, ...] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
