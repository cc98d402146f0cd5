"""Commands about features: the levels of a new cluster, and their upgrades and downgrades (KIP-584, KIP-1022).

`metadata/levels.py` and `metadata/features.py` say what levels are for. `raylog.metadata` cannot be lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from raylog.config.compaction import COMPACT
from raylog.config.topic import CLEANUP_POLICY
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.features import FEATURES, KAFKA_METADATA_FEATURE, KRAFT_FEATURE
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import (
    COMPACTION_LEVEL,
    FEATURES_LEVEL,
    LATEST_LEVEL,
    METADATA_FEATURE,
    LevelRange,
    level_range,
)
from raylog.metadata.records import FeatureLevelChanged, MetadataRecord, TopicConfigsChanged, required_level
from raylog.metadata.topic_names import INTERNAL_TOPICS

NEW_CLUSTER: Final = (
    FeatureLevelChanged(METADATA_FEATURE, LATEST_LEVEL),
    *(FeatureLevelChanged(name, levels.highest) for name, levels in FEATURES.items() if name != KRAFT_FEATURE),
)
"""The records after the first ControllerElected in a new cluster's metadata log: the newest levels.

`kraft.version` begins at 0, as in Kafka with controller.quorum.voters: the leader must know the directory of each voter
to raise it.
"""

NAME_SHOWN_MAX: Final = 100
"""How much of an unknown feature's name an error shows: a client may send a name as long as a request."""


class UpgradeType(IntEnum):
    """What an update may do to the level, in UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """A downgrade that loses no metadata."""
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a feature is to have."""

    feature: str
    level: int
    upgrade_type: int
    """An `UpgradeType`, or an unknown number."""


def update_feature(
    image: MetadataImage,
    update: FeatureUpdate,
    *,
    proposed: Mapping[str, int],
    voters: Mapping[BrokerId, LevelRange | None],
    raise_kraft_version: Callable[[], Outcome[None, MetadataRecord]],
) -> Outcome[None, MetadataRecord]:
    """Set the level of a feature; no records if it is that already. `proposed` are all levels of the same request.

    `voters` as in `raise_level`; `raise_kraft_version` sets `kraft.version` to 1, whose records are control records.
    Raises KafkaError(INVALID_UPDATE_VERSION): for an unknown feature or upgrade type, a
    level that a node does not support, a lower level without a downgrade and a higher one with it, and for a feature
    that requires a level of another one. Both kinds of downgrade are the same: no level's records are lost.
    """
    name, level, upgrade_type = update
    if upgrade_type not in [*UpgradeType]:
        raise _invalid(name, level, f"Upgrade type {upgrade_type} is unknown.")
    if name == METADATA_FEATURE:
        return raise_level(image, level, voters=voters)
    current = image.feature_level(name)
    if name == KAFKA_METADATA_FEATURE:
        if level == current:
            return Outcome(None)
        raise _invalid(name, level, f"It follows {METADATA_FEATURE}: upgrade that feature.")
    if name not in FEATURES:
        known = ", ".join((METADATA_FEATURE, KAFKA_METADATA_FEATURE, *FEATURES))
        message = f"{name[:NAME_SHOWN_MAX]!r} is not a feature of this cluster; it has {known}."
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    if level not in FEATURES[name]:
        raise _invalid(name, level, f"The controller supports levels {FEATURES[name]}.")
    if level == current:
        return Outcome(None)
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(name, level, f"It is at level {current}; a lower one requires a downgrade.")
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(name, level, f"It is at level {current}, so that this is not a downgrade.")
    if proposed.get(METADATA_FEATURE, image.metadata_level) < FEATURES_LEVEL:
        raise _invalid(name, level, f"It requires level {FEATURES_LEVEL} of {METADATA_FEATURE}.")
    _check_brokers(image, name, level)
    if name == KRAFT_FEATURE:
        if level < current:
            raise _invalid(name, level, f"It is at level {current} and cannot be lowered.")
        return raise_kraft_version()
    return Outcome(None, [FeatureLevelChanged(name, level)])


def _check_brokers(image: MetadataImage, name: str, level: int) -> None:
    """Raises KafkaError(INVALID_UPDATE_VERSION) unless all registered brokers, fenced ones included, support it."""
    for broker_id, broker in sorted(image.brokers.items()):
        ranges = {each: LevelRange(low, high) for each, low, high in broker.registration.features}
        supported = ranges.get(name, LevelRange(0, 0))
        if level not in supported:
            raise _invalid(name, level, f"Broker {broker_id} supports levels {supported}.")


def raise_level(
    image: MetadataImage, level: int, *, voters: Mapping[BrokerId, LevelRange | None]
) -> Outcome[None, MetadataRecord]:
    """Set the finalized level of `raylog.metadata` to `level`; no records if it is that already.

    Internal topics become compacted with the level from which on all brokers can do so.

    `voters` are the levels that each controller supports, None if it is not known. Raises
    KafkaError(INVALID_UPDATE_VERSION) for a level below the finalized one, and for one that a controller or a
    registered broker, fenced ones included, does not support.
    """
    if level == image.metadata_level:
        return Outcome(None)
    if level < image.metadata_level:
        raise _invalid(METADATA_FEATURE, level, f"It is at level {image.metadata_level} and cannot be lowered.")
    for voter, levels in sorted(voters.items()):
        if levels is None:
            raise _invalid(
                METADATA_FEATURE,
                level,
                f"Controller {voter} is not connected, so the levels that it supports are unknown.",
            )
        if level not in levels:
            raise _invalid(METADATA_FEATURE, level, f"Controller {voter} supports levels {levels}.")
    for broker_id, broker in sorted(image.brokers.items()):
        supported = level_range(broker.registration.features)
        if level not in supported:
            raise _invalid(METADATA_FEATURE, level, f"Broker {broker_id} supports levels {supported}.")
    return Outcome(None, [FeatureLevelChanged(METADATA_FEATURE, level), *_compacted_internal_topics(image, level)])


def _compacted_internal_topics(image: MetadataImage, level: int) -> Iterator[TopicConfigsChanged]:
    """The internal topics that were created when brokers did not compact logs, and kept all records."""
    if not image.metadata_level < COMPACTION_LEVEL <= level:
        return
    for name in sorted(INTERNAL_TOPICS & image.topics.keys()):
        topic = image.topics[name]
        if CLEANUP_POLICY.name not in topic.configs:
            configs = {**topic.configs, CLEANUP_POLICY.name: COMPACT}
            yield TopicConfigsChanged(topic.topic_id, tuple(sorted(configs.items())))


def check_registration(image: MetadataImage, features: tuple[tuple[str, int, int], ...]) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) for a broker that does not support the finalized level."""
    supported = level_range(features)
    if image.metadata_level not in supported:
        level = image.metadata_level
        message = f"The cluster is at {METADATA_FEATURE} level {level}; the broker supports levels {supported}."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    ranges = {name: LevelRange(low, high) for name, low, high in features}
    for name, level in image.feature_levels.items():
        supported_ = ranges.get(name, LevelRange(0, 0))
        if level not in supported_:
            message = f"The cluster is at {name} level {level}; the broker supports levels {supported_}."
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)


def check_writable(records: Sequence[MetadataRecord], level: int) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) for records of a kind that the finalized level does not have.

    A FeatureLevelChanged of `raylog.metadata` counts for itself and for those after it.
    """
    for record in records:
        if isinstance(record, FeatureLevelChanged) and record.feature == METADATA_FEATURE:
            level = record.level
        required = required_level(record)
        if required > level:
            kind = type(record).__name__
            message = f"{kind} needs {METADATA_FEATURE} level {required}; the cluster is at level {level}."
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)


def _invalid(name: str, level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be set to level {level}. {why}")
