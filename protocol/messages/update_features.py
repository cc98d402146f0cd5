"""UpdateFeatures (key 57). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int8, int16, int32, string

API = Api(key=57, name="UpdateFeatures", lowest=0, highest=2, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdateKey:
    """Stands in `UpdateFeaturesRequest.feature_updates`."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(1, since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesRequest:
    """Sets finalized levels of features, or only checks that it could."""

    api: ClassVar[Api] = API
    timeout_ms: int = int32(60000)
    feature_updates: tuple[FeatureUpdateKey, ...] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatableFeatureResult:
    """Stands in `UpdateFeaturesResponse.results`, versions 0-1."""

    feature: str = string()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesResponse:
    """The result for each feature."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    results: tuple[UpdatableFeatureResult, ...] = array(UpdatableFeatureResult, until=1)
