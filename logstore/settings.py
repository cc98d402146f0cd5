"""The settings of one log, typed, with Kafka's defaults; made from its topic's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from raylog.config import topic as topic_config
from raylog.config.log import PRODUCER_COMPRESSION
from raylog.config.transactions import PRODUCER_ID_EXPIRATION_MS
from raylog.core.config import ConfigKey, Configs
from raylog.protocol.records.compression import Codec

UNLIMITED = (1 << 63) - 1
"""Java's Long.MAX_VALUE, by which Kafka's configuration says "never" or "no bound"."""


class MessageTimestampType(Enum):
    """Whose clock the timestamps of a topic come from: message.timestamp.type."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class Compression:
    """What every batch of a topic is stored in; `level` as `compress` takes it."""

    codec: Codec
    level: int | None = None


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What one log needs of its topic's configuration; replaced as a whole when the configuration changes.

    Sizes are in bytes, times in milliseconds. -1 for a retention means that it never deletes.
    Source: Kafka 4.0 topic configuration and its defaults.
    """

    segment_bytes: int = 1 << 30
    """segment.bytes: a record set that would pass it opens a new segment."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """segment.ms: a segment whose first batch is older than this is rolled by the next append."""
    segment_jitter_ms: int = 0
    """segment.jitter.ms: by up to so much earlier, each segment at a time of its own."""
    index_interval_bytes: int = 4096
    """index.interval.bytes: about one index entry for so many bytes of log."""
    segment_index_bytes: int = 10 << 20
    """segment.index.bytes: a segment is rolled when its index reaches this size."""
    max_message_bytes: int = 1_048_588
    """max.message.bytes: largest batch accepted, its 12 bytes of offset and length included."""
    compression: Compression | None = None
    """compression.type with its level; None: as the producer sends it."""
    message_timestamp_type: MessageTimestampType = MessageTimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = UNLIMITED
    """message.timestamp.before.max.ms: how far a record's CreateTime may lie in the past."""
    message_timestamp_after_max_ms: int = 3_600_000
    """message.timestamp.after.max.ms: how far a record's CreateTime may lie in the future (KIP-1030: one hour)."""
    flush_messages: int = UNLIMITED
    """flush.messages: fsync before the append that brings so many unflushed records is answered."""
    flush_ms: int = UNLIMITED
    """flush.ms: fsync when the oldest unflushed record has waited so long (`Log.flush_if_due`)."""
    file_delete_delay_ms: int = 60_000
    """file.delete.delay.ms: how long the files of a deleted segment or partition stay, under other names."""
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3600 * 1000
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    """producer.id.expiration.ms: a producer not heard of for so long is forgotten."""


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
    """What the log of a topic's partition needs to know, from the topic's configuration over its broker's."""
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
        producer_id_expiration_ms=configs.below[PRODUCER_ID_EXPIRATION_MS],
    )


def _compression(configs: Configs) -> Compression | None:
    name = configs[topic_config.COMPRESSION_TYPE]
    if name == PRODUCER_COMPRESSION:
        return None
    codec = _CODECS[name]
    level_key = _LEVELS.get(codec)
    return Compression(codec, configs[level_key] if level_key is not None else None)
