"""A topic's configuration keys: each overrides a broker's key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from raylog.config import broker as broker_config
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigSource, ConfigType, Layer

Value = TypeVar("Value")


def _overrides(name: str, broker_key: ConfigKey[Value]) -> ConfigKey[Value]:
    return ConfigKey(name, broker_key.type, broker_key.default, broker_key.doc, broker_key.check, broker_key)


MAX_MESSAGE_BYTES = _overrides("max.message.bytes", broker_config.MESSAGE_MAX_BYTES)
SEGMENT_BYTES = _overrides("segment.bytes", broker_config.LOG_SEGMENT_BYTES)
SEGMENT_MS = _overrides("segment.ms", broker_config.LOG_ROLL_MS)
SEGMENT_JITTER_MS = _overrides("segment.jitter.ms", broker_config.LOG_ROLL_JITTER_MS)
INDEX_INTERVAL_BYTES = _overrides("index.interval.bytes", broker_config.LOG_INDEX_INTERVAL_BYTES)
SEGMENT_INDEX_BYTES = _overrides("segment.index.bytes", broker_config.LOG_INDEX_SIZE_MAX_BYTES)
FLUSH_MESSAGES = _overrides("flush.messages", broker_config.LOG_FLUSH_INTERVAL_MESSAGES)
FLUSH_MS = _overrides("flush.ms", broker_config.LOG_FLUSH_INTERVAL_MS)
FILE_DELETE_DELAY_MS = _overrides("file.delete.delay.ms", broker_config.LOG_SEGMENT_DELETE_DELAY_MS)
RETENTION_MS = _overrides("retention.ms", broker_config.LOG_RETENTION_MS)
RETENTION_BYTES = _overrides("retention.bytes", broker_config.LOG_RETENTION_BYTES)
MESSAGE_TIMESTAMP_TYPE = _overrides("message.timestamp.type", broker_config.LOG_MESSAGE_TIMESTAMP_TYPE)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _overrides(
    "message.timestamp.before.max.ms", broker_config.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = _overrides(
    "message.timestamp.after.max.ms", broker_config.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS
)
CLEANUP_POLICY = _overrides("cleanup.policy", broker_config.LOG_CLEANUP_POLICY)
COMPRESSION_TYPE = _overrides("compression.type", broker_config.COMPRESSION_TYPE)
COMPRESSION_GZIP_LEVEL = _overrides("compression.gzip.level", broker_config.COMPRESSION_GZIP_LEVEL)
COMPRESSION_LZ4_LEVEL = _overrides("compression.lz4.level", broker_config.COMPRESSION_LZ4_LEVEL)
COMPRESSION_ZSTD_LEVEL = _overrides("compression.zstd.level", broker_config.COMPRESSION_ZSTD_LEVEL)
MIN_INSYNC_REPLICAS = _overrides("min.insync.replicas", broker_config.MIN_INSYNC_REPLICAS)
UNCLEAN_LEADER_ELECTION_ENABLE = _overrides(
    "unclean.leader.election.enable", broker_config.UNCLEAN_LEADER_ELECTION_ENABLE
)


def _throttled_replicas(name: str, doc: str) -> ConfigKey[tuple[str, ...]]:
    def check(value: tuple[str, ...]) -> str | None:
        if value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", item, re.ASCII) for item in value):
            return None
        return "must be * or a list of partition:broker"

    return ConfigKey(name, ConfigType.LIST, (), doc, check)


LEADER_REPLICATION_THROTTLED_REPLICAS = _throttled_replicas(
    "leader.replication.throttled.replicas",
    "Replicas that, as leaders, are held to leader.replication.throttled.rate: * or partition:broker,...",
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = _throttled_replicas(
    "follower.replication.throttled.replicas",
    "Replicas that, as followers, are held to follower.replication.throttled.rate: * or partition:broker,...",
)

TOPIC_CONFIG = ConfigSchema(key for key in list(globals().values()) if isinstance(key, ConfigKey))


def topic_configs(texts: Mapping[str, str | None], broker: Configs) -> Configs:
    """Validated configuration of a topic over its broker's. Raises ConfigError."""
    layer = Layer(ConfigSource.DYNAMIC_TOPIC_CONFIG, TOPIC_CONFIG.parse(texts))
    return Configs(TOPIC_CONFIG, [layer], below=broker)
