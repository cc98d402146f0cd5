"""Commands about metadata levels: which level a new cluster begins at, and raising the level (KIP-584).

`metadata/levels.py` says what levels are for. Lowering the level is not supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from raylog.config.compaction import COMPACT
from raylog.config.topic import CLEANUP_POLICY
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import COMPACTION_LEVEL, LATEST_LEVEL, METADATA_FEATURE, LevelRange, level_range
from raylog.metadata.records import FeatureLevelChanged, MetadataRecord, TopicConfigsChanged, required_level
from raylog.metadata.topic_names import INTERNAL_TOPICS

NEW_CLUSTER: Final = (FeatureLevelChanged(METADATA_FEATURE, LATEST_LEVEL),)
"""The records after the first ControllerElected in a new cluster's metadata log: the newest level."""

NAME_SHOWN_MAX: Final = 100
"""How much of an unknown feature's name an error shows: a client may send a name as long as a request."""


def update_feature(
    image: MetadataImage, feature: str, level: int, *, voters: Mapping[BrokerId, LevelRange | None]
) -> Outcome[None, MetadataRecord]:
    """As `raise_level`. Raises KafkaError(INVALID_UPDATE_VERSION) for an unknown feature too."""
    if feature != METADATA_FEATURE:
        message = f"{feature[:NAME_SHOWN_MAX]!r} is not a feature of this cluster; it has {METADATA_FEATURE}."
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    return raise_level(image, level, voters=voters)


def raise_level(
    image: MetadataImage, level: int, *, voters: Mapping[BrokerId, LevelRange | None]
) -> Outcome[None, MetadataRecord]:
    """Set the finalized level to `level`; no records if it is that already. Internal topics become compacted with the
    level from which on all brokers can do so.

    `voters` are the levels that each controller supports, None if it is not known. Raises
    KafkaError(INVALID_UPDATE_VERSION) for a level below the finalized one, and for one that a controller or a
    registered broker, fenced ones included, does not support.
    """
    if level == image.metadata_level:
        return Outcome(None)
    if level < image.metadata_level:
        raise _invalid(level, f"It is at level {image.metadata_level} and cannot be lowered.")
    for voter, levels in sorted(voters.items()):
        if levels is None:
            raise _invalid(level, f"Controller {voter} is not connected, so the levels that it supports are unknown.")
        if level not in levels:
            raise _invalid(level, f"Controller {voter} supports levels {levels}.")
    for broker_id, broker in sorted(image.brokers.items()):
        supported = level_range(broker.registration.features)
        if level not in supported:
            raise _invalid(level, f"Broker {broker_id} supports levels {supported}.")
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


def check_writable(records: Sequence[MetadataRecord], level: int) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) for records of a kind that the finalized level does not have.

    A FeatureLevelChanged counts for itself and for those after it.
    """
    for record in records:
        if isinstance(record, FeatureLevelChanged):
            level = record.level
        required = required_level(record)
        if required > level:
            kind = type(record).__name__
            message = f"{kind} needs {METADATA_FEATURE} level {required}; the cluster is at level {level}."
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)


def _invalid(level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{METADATA_FEATURE} cannot be set to level {level}. {why}")
