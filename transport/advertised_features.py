"""The features that a node supports and that its cluster has finalized, as reported by ApiVersions (KIP-584)."""

from __future__ import annotations

from typing import Final, NamedTuple

from raylog.protocol.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey


class AdvertisedFeatures(NamedTuple):
    """The fields of ApiVersionsResponse."""

    supported: tuple[SupportedFeatureKey, ...]
    finalized_epoch: int
    """The metadata offset at which `finalized` applied; -1 if unknown."""
    finalized: tuple[FinalizedFeatureKey, ...]


NO_FEATURES: Final = AdvertisedFeatures((), -1, ())
