"""The typed settings of one log, with Kafka's defaults, from its topic's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from raylog.config import topic as topic_config
from raylog.config.compaction import COMPACT, DELETE
from raylog.config.log import PRODUCER_COMPRESSION
from raylog.config.transactions import PRODUCER_ID_EXPIRATION_MS
from raylog.core.config import ConfigKey, Configs
from raylog.protocol.records.compression import Codec

UNLIMITED = (1 << 63) - 1
"""Java's Long.MAX_VALUE, which stands for "never" or "no limit" in Kafka's configuration."""


class MessageTimestampType(Enum):
    """message.timestamp.type: the producer's or the broker's clock."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class Compression:
    """The codec of a topic's stored batches; `level` as for `compress`."""

    codec: Codec
    level: int | None = None


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The part of a topic's configuration that its logs use; replaced as a whole when the configuration changes.

    Sizes are in bytes, times in milliseconds. A retention of -1 is unlimited.
    Source: Kafka 4.0 topic configuration and its defaults.
    """

    segment_bytes: int = 1 << 30
    """segment.bytes: a record set that does not fit opens a new segment."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """segment.ms: a segment whose first batch is older than this is rolled by the next append."""
    segment_jitter_ms: int = 0
    """segment.jitter.ms: largest jitter subtracted from segment.ms."""
    index_interval_bytes: int = 4096
    """index.interval.bytes: bytes of log per index entry."""
    segment_index_bytes: int = 10 << 20
    """segment.index.bytes: a segment is rolled when its index reaches this size."""
    max_message_bytes: int = 1_048_588
    """max.message.bytes: largest batch accepted, including its 12 bytes of offset and length."""
    compression: Compression | None = None
    """compression.type with its level; None for the producer's compression."""
    message_timestamp_type: MessageTimestampType = MessageTimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = UNLIMITED
    """message.timestamp.before.max.ms: how far a record's CreateTime may be in the past."""
    message_timestamp_after_max_ms: int = 3_600_000
    """message.timestamp.after.max.ms: how far a record's CreateTime may be in the future (KIP-1030: one hour)."""
    flush_messages: int = UNLIMITED
    """flush.messages: fsync after the append that reaches this number of unflushed records."""
    flush_ms: int = UNLIMITED
    """flush.ms: fsync when the oldest unflushed record is this old (`Log.plan_sync`)."""
    file_delete_delay_ms: int = 60_000
    """file.delete.delay.ms: how long the renamed files of a deleted segment or partition are kept."""
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3600 * 1000
    is_compacted: bool = False
    """cleanup.policy contains compact: each record needs a key, and older records of the same key are removed."""
    is_deleted: bool = True
    """cleanup.policy contains delete: segments are deleted by time and size."""
    min_cleanable_dirty_ratio: float = 0.5
    """min.cleanable.dirty.ratio: a log is cleaned when a larger share of it is dirty."""
    min_compaction_lag_ms: int = 0
    """min.compaction.lag.ms: how old the newest record of a segment must be for its compaction."""
    max_compaction_lag_ms: int = UNLIMITED
    """max.compaction.lag.ms: the age of a record at which its segment is compacted whatever the dirty ratio is."""
    delete_retention_ms: int = 24 * 3600 * 1000
    """delete.retention.ms: how long a tombstone, or the marker of an empty transaction, is kept after a cleaning."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    """producer.id.expiration.ms: the state of a producer that is idle for this long expires."""


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS: dict[Codec, ConfigKey[int]] = {
    Codec.GZIP: topic_config.COMPRESSION_GZIP_LEVEL,
    Codec.LZ4: topic_config.COMPRESSION_LZ4_LEVEL,
    Codec.ZSTD: topic_config.COMPRESSION_ZSTD_LEVEL,
}


def log_settings(configs: Configs) -> LogSettings:
    """The settings of a topic's logs, from the topic's configuration over its broker's."""
    assert configs.below is not None
    return LogSettings(
        segment_bytes=configs[topic_config.SEGMENT_BYTES],
        segment_ms=configs[topic_config.SEGMENT_MS],
        segment_jitter_ms=configs[topic_config.SEGMENT_JITTER_MS],
        index_interval_bytes=configs[topic_config.INDEX_INTERVAL_BYTES],
        segment_index_bytes=configs[topic_config.SEGMENT_INDEX_BYTES],
        max_message_bytes=configs[topic_config.MAX_MESSAGE_BYTES],
        compression=_compression(configs),
        message_timestamp_type=MessageTimestampType(configs[topic_config.MESSAGE_TIMESTAMP_TYPE]),
        message_timestamp_before_max_ms=configs[topic_config.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
        message_timestamp_after_max_ms=configs[topic_config.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
        flush_messages=configs[topic_config.FLUSH_MESSAGES],
        flush_ms=configs[topic_config.FLUSH_MS],
        file_delete_delay_ms=configs[topic_config.FILE_DELETE_DELAY_MS],
        retention_bytes=configs[topic_config.RETENTION_BYTES],
        retention_ms=configs[topic_config.RETENTION_MS],
        is_compacted=COMPACT in configs[topic_config.CLEANUP_POLICY],
        is_deleted=DELETE in configs[topic_config.CLEANUP_POLICY],
        min_cleanable_dirty_ratio=configs[topic_config.MIN_CLEANABLE_DIRTY_RATIO],
        min_compaction_lag_ms=configs[topic_config.MIN_COMPACTION_LAG_MS],
        max_compaction_lag_ms=configs[topic_config.MAX_COMPACTION_LAG_MS],
        delete_retention_ms=configs[topic_config.DELETE_RETENTION_MS],
        producer_id_expiration_ms=configs.below[PRODUCER_ID_EXPIRATION_MS],
    )


def _compression(configs: Configs) -> Compression | None:
    name = configs[topic_config.COMPRESSION_TYPE]
    if name == PRODUCER_COMPRESSION:
        return None
    codec = _CODECS[name]
    level_key = _LEVELS.get(codec)
    return Compression(codec, configs[level_key] if level_key is not None else None)
