"""Groups: the keys that can be set for a single group, and how its configuration is read (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from raylog.config.consumer_groups import (
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    ConsumerGroupSettings,
)
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigSource, ConfigType, Layer, at_least

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
GROUP_KEYS: Final[tuple[ConfigKey[Any], ...]] = (CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS)
GROUP_CONFIG: Final = ConfigSchema(GROUP_KEYS)

_RANGES: Final = (
    (
        CONSUMER_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (CONSUMER_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
)


def group_configs(stored: Mapping[str, str], broker: Configs) -> Configs:
    """The configuration of a group over its broker's. The texts are those of the metadata log."""
    layer = Layer(ConfigSource.DYNAMIC_GROUP_CONFIG, GROUP_CONFIG.restore(stored))
    return Configs(GROUP_CONFIG, [layer], below=broker)


def check_group_together(configs: Configs, broker: Configs) -> None:
    """Check a group's values against the limits of brokers and each other. Raises ConfigError."""
    for key, least, greatest in _RANGES:
        value = configs[key]
        if value < broker[least]:
            raise key.refused(str(value), f"must be at least {least.name}, which is {broker[least]}")
        if value > broker[greatest]:
            raise key.refused(str(value), f"must be at most {greatest.name}, which is {broker[greatest]}")
    session_ms, heartbeat_ms = configs[CONSUMER_SESSION_TIMEOUT_MS], configs[CONSUMER_HEARTBEAT_INTERVAL_MS]
    if session_ms <= heartbeat_ms:
        rule = f"must be greater than {CONSUMER_HEARTBEAT_INTERVAL_MS.name}, which is {heartbeat_ms}"
        raise CONSUMER_SESSION_TIMEOUT_MS.refused(str(session_ms), rule)


def settings_of_group(settings: ConsumerGroupSettings, configs: Configs) -> ConsumerGroupSettings:
    """The broker's settings with what is set for one group."""
    return replace(
        settings,
        session_timeout_ms=configs[CONSUMER_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=configs[CONSUMER_HEARTBEAT_INTERVAL_MS],
    )
