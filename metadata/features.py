"""Kafka's features: levels of what clients may use, finalized for the whole cluster (KIP-584, KIP-1022).

`raylog.metadata` (`metadata/levels.py`) says which records the metadata log may hold. The features below say what
clients use; their names and levels are Kafka's. A level is a record of the metadata log, which level 6 of
`raylog.metadata` introduces, and applies to all nodes.

| feature | levels | with it |
| --- | --- | --- |
| `transaction.version` | 0-2 | 1: flexible records in `__transaction_state`; 2: transactions of version 2 (KIP-890) |
| `group.version` | 0-1 | 1: groups of the consumer protocol (KIP-848) |
| `share.version` | 0-1 | 1: share groups (KIP-932) |
| `streams.version` | 0-1 | 1: streams groups (KIP-1071) |
| `kraft.version` | 0-1 | 1: a quorum whose voters can change (KIP-853); as in Kafka it cannot be lowered |
| `metadata.version` | 25 | Kafka's name of what clients find in 4.0; it follows `raylog.metadata`, and gates nothing |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raylog.metadata.control_records import KRAFT_VERSIONS
from raylog.metadata.levels import (
    CONSUMER_GROUPS_LEVEL,
    FEATURES_LEVEL,
    METADATA_FEATURE,
    SUPPORTED,
    LevelRange,
    UnsupportedLevel,
)
from raylog.protocol.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey
from raylog.transport.advertised_features import AdvertisedFeatures

TRANSACTION_FEATURE: Final = "transaction.version"
GROUP_FEATURE: Final = "group.version"
SHARE_FEATURE: Final = "share.version"
STREAMS_FEATURE: Final = "streams.version"
KRAFT_FEATURE: Final = "kraft.version"
KAFKA_METADATA_FEATURE: Final = "metadata.version"
KAFKA_METADATA_LEVEL: Final = 25
"""4.0-IV3: Kafka's tools of every 4.x know it, and the newest levels of the other features require no later one."""
TRANSACTIONS_2: Final = 2
"""The level of `transaction.version` from which on clients use transactions of version 2."""
TRANSACTION_RECORDS_1: Final = 1
"""The level of `transaction.version` from which on coordinators write flexible records."""


FEATURES: Final[Mapping[str, LevelRange]] = {
    TRANSACTION_FEATURE: LevelRange(0, 2),
    GROUP_FEATURE: LevelRange(0, 1),
    SHARE_FEATURE: LevelRange(0, 1),
    STREAMS_FEATURE: LevelRange(0, 1),
    KRAFT_FEATURE: LevelRange(*KRAFT_VERSIONS),
}
"""The levels that this version of raylog supports, of the features whose levels are records of their own.

Level 0 is without the feature."""


def registered_ranges(metadata_levels: LevelRange) -> tuple[tuple[str, int, int], ...]:
    """(name, lowest, highest) of all features; the node supports these levels of `raylog.metadata`."""
    ranges = {METADATA_FEATURE: metadata_levels, **FEATURES}
    return tuple((name, levels.lowest, levels.highest) for name, levels in ranges.items())


REGISTERED: Final = registered_ranges(SUPPORTED)
"""What brokers register."""


def level_of(name: str, stored: Mapping[str, int], metadata_level: int) -> int:
    """The finalized level of the feature; 0 if it has none.

    Level 5 of `raylog.metadata` and later ones imply `group.version` 1, as long as it is not set.
    """
    if name == METADATA_FEATURE:
        return metadata_level
    if name == KAFKA_METADATA_FEATURE:
        return KAFKA_METADATA_LEVEL if metadata_level >= FEATURES_LEVEL else 0
    if name == GROUP_FEATURE and name not in stored:
        return 1 if metadata_level >= CONSUMER_GROUPS_LEVEL else 0
    return stored.get(name, 0)


def check_feature_supported(name: str, level: int) -> None:
    """Raises UnsupportedLevel for a finalized level that this version of raylog does not support."""
    levels = FEATURES.get(name)
    if levels is None:
        raise UnsupportedLevel(f"the metadata log sets feature {name!r}, which this version of raylog does not know")
    if level not in levels:
        raise UnsupportedLevel(
            f"the metadata log sets {name} to level {level}; this version of raylog supports {levels}"
        )


def advertised_features(stored: Mapping[str, int], metadata_level: int, *, offset: int) -> AdvertisedFeatures:
    """For ApiVersions: the supported levels, and those that are finalized as of the metadata record at `offset`."""
    supported = (
        *(SupportedFeatureKey(name=name, min_version=low, max_version=high) for name, low, high in REGISTERED),
        SupportedFeatureKey(
            name=KAFKA_METADATA_FEATURE, min_version=KAFKA_METADATA_LEVEL, max_version=KAFKA_METADATA_LEVEL
        ),
    )
    levels = {each.name: level_of(each.name, stored, metadata_level) for each in supported} if offset >= 0 else {}
    finalized = tuple(
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in levels.items()
        if level
    )
    return AdvertisedFeatures(supported, offset, finalized)
