"""Streams groups (KIP-1071): the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.config.groups import GROUP_COORDINATOR_REBALANCE_PROTOCOLS, STREAMS
from raylog.core.config import INT_MAX, ConfigKey, Configs, ConfigType, at_least

GROUP_STREAMS_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.streams.session.timeout.ms",
    ConfigType.INT,
    45_000,
    "Session timeout of the members of streams groups, in milliseconds. A member without a heartbeat for this long is"
    " removed.",
    at_least(1),
)
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.streams.min.session.timeout.ms",
    ConfigType.INT,
    45_000,
    "Least value of group.streams.session.timeout.ms, in milliseconds.",
    at_least(1),
)
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.streams.max.session.timeout.ms",
    ConfigType.INT,
    60_000,
    "Greatest value of group.streams.session.timeout.ms, in milliseconds.",
    at_least(1),
)
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.streams.heartbeat.interval.ms",
    ConfigType.INT,
    5000,
    "How often the members of streams groups send heartbeats, in milliseconds. It must be at most"
    " group.streams.session.timeout.ms.",
    at_least(1),
)
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.streams.min.heartbeat.interval.ms",
    ConfigType.INT,
    5000,
    "Least value of group.streams.heartbeat.interval.ms, in milliseconds.",
    at_least(1),
)
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.streams.max.heartbeat.interval.ms",
    ConfigType.INT,
    15_000,
    "Greatest value of group.streams.heartbeat.interval.ms, in milliseconds.",
    at_least(1),
)
GROUP_STREAMS_MAX_SIZE: ConfigKey[int] = ConfigKey(
    "group.streams.max.size",
    ConfigType.INT,
    INT_MAX,
    "Largest number of members in a streams group. Further members are rejected with GROUP_MAX_SIZE_REACHED.",
    at_least(1),
)
GROUP_STREAMS_NUM_STANDBY_REPLICAS: ConfigKey[int] = ConfigKey(
    "group.streams.num.standby.replicas",
    ConfigType.INT,
    0,
    "Number of standby copies of each task with state in streams groups.",
    at_least(0),
)
GROUP_STREAMS_MAX_STANDBY_REPLICAS: ConfigKey[int] = ConfigKey(
    "group.streams.max.standby.replicas",
    ConfigType.INT,
    2,
    "Greatest value of group.streams.num.standby.replicas.",
    at_least(0),
)
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS: ConfigKey[int] = ConfigKey(
    "group.streams.initial.rebalance.delay.ms",
    ConfigType.INT,
    3000,
    "How long a streams group without members waits for more of them, once the first one joins, before it assigns"
    " tasks, in milliseconds.",
    at_least(0),
)


@dataclass(frozen=True, slots=True)
class StreamsGroupSettings:
    """Of streams groups."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    members_max: int
    """In one group."""
    standby_replicas: int
    initial_rebalance_delay_ms: int
    enabled: bool = True


def streams_group_settings(configs: Configs) -> StreamsGroupSettings:
    return StreamsGroupSettings(
        session_timeout_ms=configs[GROUP_STREAMS_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=configs[GROUP_STREAMS_HEARTBEAT_INTERVAL_MS],
        members_max=configs[GROUP_STREAMS_MAX_SIZE],
        standby_replicas=configs[GROUP_STREAMS_NUM_STANDBY_REPLICAS],
        initial_rebalance_delay_ms=configs[GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS],
        enabled=STREAMS in configs[GROUP_COORDINATOR_REBALANCE_PROTOCOLS],
    )
