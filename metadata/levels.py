"""Metadata levels: which kinds of records the metadata log may hold, agreed on by all nodes (KIP-584).

Kafka calls this feature `metadata.version`; ours is `raylog.metadata`. Each version of raylog supports a range of
levels. Brokers register their range, and the level in force, the finalized level, is a record of the metadata log. A
kind of record names the level that introduced it and is written at that level or a later one only, so that nodes can be
upgraded one at a time: the level is raised once every node supports it.

Level 1 is that of logs that hold no FeatureLevelChanged: they were written before levels existed.
Level 2 introduces FeatureLevelChanged.
Level 3 introduces SCRAM credentials, client quotas and delegation tokens.
Level 4 introduces passwords in the dynamic configuration of brokers, several log directories of a broker, and
compaction.
Level 5 introduces groups of the consumer protocol (KIP-848). Their records are in __consumer_offsets, and coordinators
of earlier levels would not know the groups.
Level 6 introduces configurations of single groups; subscriptions to client metrics (KIP-714); members of both
protocols in one group; share groups (KIP-932); coordinators that are nodes of their own (metadata/node_roles.py), which
controllers of earlier levels would take for brokers, to place the partitions of any topic on them; and the levels of
Kafka's features (metadata/features.py), which include transactions of version 2.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raylog.core.errors import InvariantViolation

METADATA_FEATURE: Final = "raylog.metadata"
FIRST_LEVEL: Final = 1
PASSWORDS_LEVEL: Final = 4
DIRECTORIES_LEVEL: Final = 4
"""From this level on a broker may have several log directories."""
COMPACTION_LEVEL: Final = 4
"""From this level on all brokers compact logs, and internal topics have the cleanup policy compact."""
CONSUMER_GROUPS_LEVEL: Final = 5
"""From this level on coordinators serve groups of the consumer protocol."""
GROUP_CONFIGS_LEVEL: Final = 6
"""From this level on single groups may have a configuration."""
COORDINATORS_LEVEL: Final = 6
"""From this level on coordinators may be nodes of their own."""
MIXED_GROUPS_LEVEL: Final = 6
"""From this level on groups have members of both protocols; earlier coordinators would take all for one kind."""
CLIENT_METRICS_LEVEL: Final = 6
"""From this level on the metadata log may hold subscriptions to client metrics."""
FEATURES_LEVEL: Final = 6
"""From this level on the metadata log may hold levels of Kafka's features."""
LATEST_LEVEL: Final = 6


class LevelRange(NamedTuple):
    """Levels of a feature, both inclusive."""

    lowest: int
    highest: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.lowest <= level <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


SUPPORTED: Final = LevelRange(FIRST_LEVEL, LATEST_LEVEL)
"""What this version of raylog reads and writes."""
SUPPORTED_WITH_COORDINATORS: Final = LevelRange(COORDINATORS_LEVEL, LATEST_LEVEL)
"""What a coordinator supports, which does not exist below this level."""
FIRST_LEVEL_ONLY: Final = LevelRange(FIRST_LEVEL, FIRST_LEVEL)
"""What a node supports that registers no range: it is of a version from before levels."""


def level_range(features: tuple[tuple[str, int, int], ...]) -> LevelRange:
    """The range of `raylog.metadata` levels among (name, lowest, highest) of a registration."""
    for name, lowest, highest in features:
        if name == METADATA_FEATURE:
            return LevelRange(lowest, highest)
    return FIRST_LEVEL_ONLY


class UnsupportedLevel(InvariantViolation):
    """The metadata log holds what this version of raylog does not know: the node cannot go on from it."""


def check_supported(level: int) -> None:
    """Raises UnsupportedLevel for a finalized level that this version of raylog does not support."""
    if level not in SUPPORTED:
        raise UnsupportedLevel(
            f"the metadata log is at {METADATA_FEATURE} level {level}; this version of raylog supports {SUPPORTED}"
        )


def unknown_kind(number: int) -> UnsupportedLevel:
    """For a record of a kind that this version of raylog does not know."""
    return UnsupportedLevel(
        f"metadata record kind {number} is unknown: it needs {METADATA_FEATURE} level {LATEST_LEVEL + 1} or later;"
        f" this version of raylog supports {SUPPORTED}"
    )
