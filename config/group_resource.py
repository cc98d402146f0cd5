"""Groups: the keys that can be set for a single group, and how its configuration is read.

Source: KIP-848, KIP-932, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from raylog.config.consumer import BY_DURATION, EARLIEST, LATEST, duration_ms
from raylog.config.consumer_groups import (
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    ConsumerGroupSettings,
)
from raylog.config.share_groups import (
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_SESSION_TIMEOUT_MS,
    ShareGroupSettings,
)
from raylog.config.streams_groups import (
    GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS,
    GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_MAX_STANDBY_REPLICAS,
    GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_NUM_STANDBY_REPLICAS,
    GROUP_STREAMS_SESSION_TIMEOUT_MS,
    StreamsGroupSettings,
)
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigSource, ConfigType, Layer, at_least, one_of

CONSUMER_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "consumer.session.timeout.ms",
    ConfigType.INT,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS.default,
    "Session timeout of the members of this group if it uses the consumer protocol, in milliseconds. It must be within"
    " group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms, and greater than"
    " consumer.heartbeat.interval.ms.",
    at_least(1),
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
)
CONSUMER_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "consumer.heartbeat.interval.ms",
    ConfigType.INT,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS.default,
    "How often the members of this group send heartbeats if it uses the consumer protocol, in milliseconds. It must be"
    " within group.consumer.min.heartbeat.interval.ms and group.consumer.max.heartbeat.interval.ms.",
    at_least(1),
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
)


READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


def _check_share_reset(text: str) -> str | None:
    if text in (EARLIEST, LATEST) or duration_ms(text) is not None:
        return None
    return f"must be {EARLIEST}, {LATEST} or {BY_DURATION}<ISO 8601 duration>, such as {BY_DURATION}PT1H"


SHARE_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "share.session.timeout.ms",
    ConfigType.INT,
    GROUP_SHARE_SESSION_TIMEOUT_MS.default,
    "Session timeout of the members of this group if it is a share group, in milliseconds. It must be within"
    " group.share.min.session.timeout.ms and group.share.max.session.timeout.ms, and greater than"
    " share.heartbeat.interval.ms.",
    at_least(1),
    GROUP_SHARE_SESSION_TIMEOUT_MS,
)
SHARE_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "share.heartbeat.interval.ms",
    ConfigType.INT,
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS.default,
    "How often the members of this group send heartbeats if it is a share group, in milliseconds. It must be within"
    " group.share.min.heartbeat.interval.ms and group.share.max.heartbeat.interval.ms.",
    at_least(1),
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
)
SHARE_RECORD_LOCK_DURATION_MS: ConfigKey[int] = ConfigKey(
    "share.record.lock.duration.ms",
    ConfigType.INT,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS.default,
    "How long a member of this share group has to acknowledge a record, in milliseconds. It must be within"
    " group.share.min.record.lock.duration.ms and group.share.max.record.lock.duration.ms.",
    at_least(1000),
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
)
SHARE_AUTO_OFFSET_RESET: ConfigKey[str] = ConfigKey(
    "share.auto.offset.reset",
    ConfigType.STRING,
    LATEST,
    "Where this share group begins in a partition that it has not read: earliest, latest, or by_duration:PT1H for the"
    " records of the last hour.",
    _check_share_reset,
)
SHARE_ISOLATION_LEVEL: ConfigKey[str] = ConfigKey(
    "share.isolation.level",
    ConfigType.STRING,
    READ_UNCOMMITTED,
    "Whether this share group gets the records of open and aborted transactions: read_uncommitted, or read_committed"
    " for those of committed transactions only.",
    one_of(READ_COMMITTED, READ_UNCOMMITTED),
)
STREAMS_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "streams.session.timeout.ms",
    ConfigType.INT,
    GROUP_STREAMS_SESSION_TIMEOUT_MS.default,
    "Session timeout of the members of this group if it is a streams group, in milliseconds. It must be within"
    " group.streams.min.session.timeout.ms and group.streams.max.session.timeout.ms, and greater than"
    " streams.heartbeat.interval.ms.",
    at_least(1),
    GROUP_STREAMS_SESSION_TIMEOUT_MS,
)
STREAMS_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "streams.heartbeat.interval.ms",
    ConfigType.INT,
    GROUP_STREAMS_HEARTBEAT_INTERVAL_MS.default,
    "How often the members of this group send heartbeats if it is a streams group, in milliseconds. It must be within"
    " group.streams.min.heartbeat.interval.ms and group.streams.max.heartbeat.interval.ms.",
    at_least(1),
    GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
)
STREAMS_NUM_STANDBY_REPLICAS: ConfigKey[int] = ConfigKey(
    "streams.num.standby.replicas",
    ConfigType.INT,
    GROUP_STREAMS_NUM_STANDBY_REPLICAS.default,
    "Number of standby copies of each task with state if this is a streams group; at most"
    " group.streams.max.standby.replicas. A change makes the group assign anew.",
    at_least(0),
    GROUP_STREAMS_NUM_STANDBY_REPLICAS,
)
STREAMS_INITIAL_REBALANCE_DELAY_MS: ConfigKey[int] = ConfigKey(
    "streams.initial.rebalance.delay.ms",
    ConfigType.INT,
    GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS.default,
    "How long this group, if it is a streams group, waits for more members once the first one has joined, before it"
    " assigns tasks, in milliseconds.",
    at_least(0),
    GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS,
)
GROUP_KEYS: Final[tuple[ConfigKey[Any], ...]] = (
    CONSUMER_SESSION_TIMEOUT_MS,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_RECORD_LOCK_DURATION_MS,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_ISOLATION_LEVEL,
    STREAMS_SESSION_TIMEOUT_MS,
    STREAMS_HEARTBEAT_INTERVAL_MS,
    STREAMS_NUM_STANDBY_REPLICAS,
    STREAMS_INITIAL_REBALANCE_DELAY_MS,
)
GROUP_CONFIG: Final = ConfigSchema(GROUP_KEYS)

_RANGES: Final = (
    (
        CONSUMER_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (CONSUMER_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    (SHARE_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    (SHARE_SESSION_TIMEOUT_MS, GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    (
        SHARE_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    (STREAMS_HEARTBEAT_INTERVAL_MS, GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS, GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS),
    (STREAMS_SESSION_TIMEOUT_MS, GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS, GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS),
    (STREAMS_NUM_STANDBY_REPLICAS, None, GROUP_STREAMS_MAX_STANDBY_REPLICAS),
)


def group_configs(stored: Mapping[str, str], broker: Configs) -> Configs:
    """The configuration of a group over its broker's. The texts are those of the metadata log."""
    layer = Layer(ConfigSource.DYNAMIC_GROUP_CONFIG, GROUP_CONFIG.restore(stored))
    return Configs(GROUP_CONFIG, [layer], below=broker)


def check_group_together(configs: Configs, broker: Configs) -> None:
    """Check a group's values against the limits of brokers and each other. Raises ConfigError."""
    for key, least, greatest in _RANGES:
        value = configs[key]
        if least is not None and value < broker[least]:
            raise key.refused(str(value), f"must be at least {least.name}, which is {broker[least]}")
        if value > broker[greatest]:
            raise key.refused(str(value), f"must be at most {greatest.name}, which is {broker[greatest]}")
    for session, heartbeat in (
        (CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS),
        (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS),
        (STREAMS_SESSION_TIMEOUT_MS, STREAMS_HEARTBEAT_INTERVAL_MS),
    ):
        if configs[session] <= configs[heartbeat]:
            rule = f"must be greater than {heartbeat.name}, which is {configs[heartbeat]}"
            raise session.refused(str(configs[session]), rule)


def settings_of_group(settings: ConsumerGroupSettings, configs: Configs) -> ConsumerGroupSettings:
    """The broker's settings with what is set for one group."""
    return replace(
        settings,
        session_timeout_ms=configs[CONSUMER_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=configs[CONSUMER_HEARTBEAT_INTERVAL_MS],
    )


def share_settings_of_group(settings: ShareGroupSettings, configs: Configs) -> ShareGroupSettings:
    """The broker's settings with what is set for one share group."""
    return replace(
        settings,
        session_timeout_ms=configs[SHARE_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=configs[SHARE_HEARTBEAT_INTERVAL_MS],
        lock_duration_ms=configs[SHARE_RECORD_LOCK_DURATION_MS],
        auto_offset_reset=configs[SHARE_AUTO_OFFSET_RESET],
        read_committed=configs[SHARE_ISOLATION_LEVEL] == READ_COMMITTED,
    )


def streams_settings_of_group(settings: StreamsGroupSettings, configs: Configs) -> StreamsGroupSettings:
    """The broker's settings with what is set for one streams group."""
    return replace(
        settings,
        session_timeout_ms=configs[STREAMS_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=configs[STREAMS_HEARTBEAT_INTERVAL_MS],
        standby_replicas=configs[STREAMS_NUM_STANDBY_REPLICAS],
        initial_rebalance_delay_ms=configs[STREAMS_INITIAL_REBALANCE_DELAY_MS],
    )
