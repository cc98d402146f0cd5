"""The features that a node supports and that its cluster has finalized, as ApiVersions tells of them (KIP-584)."""

from __future__ import annotations

from typing import Final, NamedTuple

from raylog.protocol.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey


class AdvertisedFeatures(NamedTuple):
    """The fields of ApiVersionsResponse."""

    supported: tuple[SupportedFeatureKey, ...]
    finalized_epoch: int
    """Offset of the metadata at which `finalized` was so; -1 where it is not known."""
    finalized: tuple[FinalizedFeatureKey, ...]


NO_FEATURES: Final = AdvertisedFeatures((), -1, ())
