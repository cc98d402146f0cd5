"""Groups and committed offsets: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.config import INT_MAX, ConfigKey, Configs, ConfigType, at_least, some_of

MINUTE_MS: Final = 60_000
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
STREAMS: Final = "streams"
SHARE: Final = "share"

GROUP_COORDINATOR_REBALANCE_PROTOCOLS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "group.coordinator.rebalance.protocols",
    ConfigType.LIST,
    (CLASSIC, CONSUMER, STREAMS),
    "The protocols of groups that the coordinator serves: classic, whose members assign the partitions, consumer, whose"
    " coordinator does (KIP-848), and streams (KIP-1071). Without consumer, ConsumerGroupHeartbeat fails with"
    " UNSUPPORTED_VERSION; without streams, StreamsGroupHeartbeat does. share has no effect: the feature share.version"
    " enables share groups.",
    some_of(CLASSIC, CONSUMER, STREAMS, SHARE, required=CLASSIC),
)
GROUP_MIN_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.min.session.timeout.ms",
    ConfigType.INT,
    6000,
    "Shortest session timeout of a group member, in milliseconds. A member that asks for less is rejected.",
    at_least(0),
)
GROUP_MAX_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.max.session.timeout.ms",
    ConfigType.INT,
    1_800_000,
    "Longest session timeout of a group member, in milliseconds. A member that asks for more is rejected.",
    at_least(1),
)
GROUP_INITIAL_REBALANCE_DELAY_MS: ConfigKey[int] = ConfigKey(
    "group.initial.rebalance.delay.ms",
    ConfigType.INT,
    3000,
    "Time, in milliseconds, that the coordinator waits for more members before the first rebalance of an empty group.",
    at_least(0),
)
GROUP_MAX_SIZE: ConfigKey[int] = ConfigKey(
    "group.max.size",
    ConfigType.INT,
    INT_MAX,
    "Largest number of members in a group. Further members are rejected with GROUP_MAX_SIZE_REACHED.",
    at_least(1),
)
MAX_GROUPS_PER_BROKER: ConfigKey[int] = ConfigKey(
    "max.groups.per.broker",
    ConfigType.INT,
    100_000,
    "Largest number of groups that one broker coordinates. Requests that would create further ones fail with"
    " POLICY_VIOLATION. Kafka has no such key.",
    at_least(1),
)
OFFSET_METADATA_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "offset.metadata.max.bytes",
    ConfigType.INT,
    4096,
    "Longest metadata of a committed offset, in bytes. A commit with more fails with OFFSET_METADATA_TOO_LARGE.",
    at_least(0),
)
OFFSETS_RETENTION_MINUTES: ConfigKey[int] = ConfigKey(
    "offsets.retention.minutes",
    ConfigType.INT,
    10_080,
    "Time, in minutes, after which the committed offsets of a group without members are deleted. For consumers that"
    " assign partitions themselves it begins with the last commit of each partition.",
    at_least(1),
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "offsets.retention.check.interval.ms",
    ConfigType.LONG,
    600_000,
    "How often the coordinator deletes expired offsets, in milliseconds.",
    at_least(1),
)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits of classic consumer groups."""

    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_rebalance_delay_ms: int
    members_max: int
    """In one group."""
    groups_max: int
    """On one broker."""


def group_limits(configs: Configs) -> GroupLimits:
    return GroupLimits(
        session_timeout_min_ms=configs[GROUP_MIN_SESSION_TIMEOUT_MS],
        session_timeout_max_ms=configs[GROUP_MAX_SESSION_TIMEOUT_MS],
        initial_rebalance_delay_ms=configs[GROUP_INITIAL_REBALANCE_DELAY_MS],
        members_max=configs[GROUP_MAX_SIZE],
        groups_max=configs[MAX_GROUPS_PER_BROKER],
    )


@dataclass(frozen=True, slots=True)
class OffsetSettings:
    """Settings of committed offsets."""

    metadata_bytes_max: int
    retention_ms: int
    retention_check_interval_ms: int


def offset_settings(configs: Configs) -> OffsetSettings:
    return OffsetSettings(
        metadata_bytes_max=configs[OFFSET_METADATA_MAX_BYTES],
        retention_ms=configs[OFFSETS_RETENTION_MINUTES] * MINUTE_MS,
        retention_check_interval_ms=configs[OFFSETS_RETENTION_CHECK_INTERVAL_MS],
    )
