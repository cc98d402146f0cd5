"""The configuration keys of a topic, each of which overrides a broker's key, and the settings made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from raylog.config import compaction, log, replication
from raylog.core.config import Check, ConfigKey, Configs, ConfigSchema, ConfigSource, ConfigType, Layer, at_least

Value = TypeVar("Value")
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def _overrides(name: str, broker_key: ConfigKey[Value], check: Check | None = None) -> ConfigKey[Value]:
    """A topic's key; `check` if a topic may have values that cannot be the default of all topics."""
    check = broker_key.check if check is None else check
    return ConfigKey(name, broker_key.type, broker_key.default, broker_key.doc, check, broker_key)


def _throttled_replicas(name: str, doc: str) -> ConfigKey[tuple[str, ...]]:
    def check(value: tuple[str, ...]) -> str | None:
        if value == ("*",) or all(map(_THROTTLED_REPLICA.fullmatch, value)):
            return None
        return "must be * or a list of partition:broker"

    return ConfigKey(name, ConfigType.LIST, (), doc, check)


MAX_MESSAGE_BYTES = _overrides("max.message.bytes", log.MESSAGE_MAX_BYTES, at_least(0))
SEGMENT_BYTES = _overrides("segment.bytes", log.LOG_SEGMENT_BYTES)
SEGMENT_MS = _overrides("segment.ms", log.LOG_ROLL_MS)
SEGMENT_JITTER_MS = _overrides("segment.jitter.ms", log.LOG_ROLL_JITTER_MS)
INDEX_INTERVAL_BYTES = _overrides("index.interval.bytes", log.LOG_INDEX_INTERVAL_BYTES)
SEGMENT_INDEX_BYTES = _overrides("segment.index.bytes", log.LOG_INDEX_SIZE_MAX_BYTES)
FLUSH_MESSAGES = _overrides("flush.messages", log.LOG_FLUSH_INTERVAL_MESSAGES)
FLUSH_MS = _overrides("flush.ms", log.LOG_FLUSH_INTERVAL_MS)
FILE_DELETE_DELAY_MS = _overrides("file.delete.delay.ms", log.LOG_SEGMENT_DELETE_DELAY_MS)
RETENTION_MS = _overrides("retention.ms", log.LOG_RETENTION_MS, at_least(-1))
RETENTION_BYTES = _overrides("retention.bytes", log.LOG_RETENTION_BYTES)
MESSAGE_TIMESTAMP_TYPE = _overrides("message.timestamp.type", log.LOG_MESSAGE_TIMESTAMP_TYPE)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _overrides("message.timestamp.before.max.ms", log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = _overrides("message.timestamp.after.max.ms", log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS)
CLEANUP_POLICY = _overrides("cleanup.policy", compaction.LOG_CLEANUP_POLICY)
MIN_CLEANABLE_DIRTY_RATIO = _overrides("min.cleanable.dirty.ratio", compaction.LOG_CLEANER_MIN_CLEANABLE_RATIO)
DELETE_RETENTION_MS = _overrides("delete.retention.ms", compaction.LOG_CLEANER_DELETE_RETENTION_MS)
MIN_COMPACTION_LAG_MS = _overrides("min.compaction.lag.ms", compaction.LOG_CLEANER_MIN_COMPACTION_LAG_MS)
MAX_COMPACTION_LAG_MS = _overrides("max.compaction.lag.ms", compaction.LOG_CLEANER_MAX_COMPACTION_LAG_MS)
COMPRESSION_TYPE = _overrides("compression.type", log.COMPRESSION_TYPE)
COMPRESSION_GZIP_LEVEL = _overrides("compression.gzip.level", log.COMPRESSION_GZIP_LEVEL)
COMPRESSION_LZ4_LEVEL = _overrides("compression.lz4.level", log.COMPRESSION_LZ4_LEVEL)
COMPRESSION_ZSTD_LEVEL = _overrides("compression.zstd.level", log.COMPRESSION_ZSTD_LEVEL)
MIN_INSYNC_REPLICAS = _overrides("min.insync.replicas", replication.MIN_INSYNC_REPLICAS)
UNCLEAN_LEADER_ELECTION_ENABLE = _overrides(
    "unclean.leader.election.enable", replication.UNCLEAN_LEADER_ELECTION_ENABLE
)
LEADER_REPLICATION_THROTTLED_REPLICAS = _throttled_replicas(
    "leader.replication.throttled.replicas",
    "Replicas to which leader.replication.throttled.rate applies on the leader's side: partition:broker,... or * for"
    " all.",
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = _throttled_replicas(
    "follower.replication.throttled.replicas",
    "Replicas to which follower.replication.throttled.rate applies on the follower's side: partition:broker,... or *"
    " for all.",
)

TOPIC_KEYS: Final[tuple[ConfigKey[Any], ...]] = (
    MAX_MESSAGE_BYTES,
    SEGMENT_BYTES,
    SEGMENT_MS,
    SEGMENT_JITTER_MS,
    INDEX_INTERVAL_BYTES,
    SEGMENT_INDEX_BYTES,
    FLUSH_MESSAGES,
    FLUSH_MS,
    FILE_DELETE_DELAY_MS,
    RETENTION_MS,
    RETENTION_BYTES,
    MESSAGE_TIMESTAMP_TYPE,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    CLEANUP_POLICY,
    MIN_CLEANABLE_DIRTY_RATIO,
    DELETE_RETENTION_MS,
    MIN_COMPACTION_LAG_MS,
    MAX_COMPACTION_LAG_MS,
    COMPRESSION_TYPE,
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_ZSTD_LEVEL,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    LEADER_REPLICATION_THROTTLED_REPLICAS,
    FOLLOWER_REPLICATION_THROTTLED_REPLICAS,
)
"""Every key of a topic, in the order of docs/configuration.md."""

TOPIC_CONFIG: Final = ConfigSchema(TOPIC_KEYS)


def topic_configs(stored: Mapping[str, str], broker: Configs) -> Configs:
    """The configuration of a topic over its broker's.

    The texts are those of the metadata log: they were validated when they were stored, and never prevent a start.
    """
    layer = Layer(ConfigSource.DYNAMIC_TOPIC_CONFIG, TOPIC_CONFIG.restore(stored))
    return Configs(TOPIC_CONFIG, [layer], below=broker)


def check_topic_together(configs: Configs) -> None:
    """Raises ConfigError if values of different keys contradict each other."""
    shortest, longest = configs[MIN_COMPACTION_LAG_MS], configs[MAX_COMPACTION_LAG_MS]
    if shortest > longest:
        rule = f"must be at most {MAX_COMPACTION_LAG_MS.name}={longest}"
        raise MIN_COMPACTION_LAG_MS.refused(str(shortest), rule)


@dataclass(frozen=True, slots=True)
class TopicReplication:
    """How the partitions of a topic are replicated."""

    min_insync_replicas: int
    unclean_leader_election: bool
    throttled_on_leader: tuple[str, ...]
    """`partition:broker` each, or `*` for all; as the next one."""
    throttled_on_follower: tuple[str, ...]


def topic_replication(configs: Configs) -> TopicReplication:
    return TopicReplication(
        min_insync_replicas=configs[MIN_INSYNC_REPLICAS],
        unclean_leader_election=configs[UNCLEAN_LEADER_ELECTION_ENABLE],
        throttled_on_leader=configs[LEADER_REPLICATION_THROTTLED_REPLICAS],
        throttled_on_follower=configs[FOLLOWER_REPLICATION_THROTTLED_REPLICAS],
    )
