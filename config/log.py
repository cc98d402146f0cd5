"""Logs on disk: the broker's keys, and the settings of a log directory that are made from them.

What one log takes from its topic's keys is `LogSettings`, in logstore/settings.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.config import LONG_MAX, ConfigKey, Configs, ConfigType, at_least, between, one_of

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
SEGMENT_BYTES_MIN: Final = 1 << 20
"""Kafka's bound since 4.0 (KIP-1030): every segment needs open files and entries in a directory."""
PRODUCER_COMPRESSION: Final = "producer"
"""compression.type: batches are stored as the producer compressed them."""

MESSAGE_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "message.max.bytes",
    ConfigType.INT,
    1_048_588,
    "Largest record batch that is accepted, in bytes, after compression. A larger one fails with MESSAGE_TOO_LARGE.",
    at_least(1024),
    dynamic=True,
)
LOG_SEGMENT_BYTES: ConfigKey[int] = ConfigKey(
    "log.segment.bytes",
    ConfigType.INT,
    1 << 30,
    "Largest size of a segment file, in bytes. A batch that does not fit is appended to a new segment.",
    at_least(SEGMENT_BYTES_MIN),
    dynamic=True,
)
LOG_ROLL_HOURS: ConfigKey[int] = ConfigKey(
    "log.roll.hours",
    ConfigType.INT,
    168,
    "Time after which a segment is rolled, in hours. Ignored if log.roll.ms is set.",
    at_least(1),
)
LOG_ROLL_MS: ConfigKey[int] = ConfigKey(
    "log.roll.ms",
    ConfigType.LONG,
    604_800_000,
    "Time after which a segment is rolled even if it is not full, in milliseconds.",
    at_least(1),
    coarser=((LOG_ROLL_HOURS, HOUR_MS),),
    dynamic=True,
)
LOG_ROLL_JITTER_HOURS: ConfigKey[int] = ConfigKey(
    "log.roll.jitter.hours",
    ConfigType.INT,
    0,
    "Largest jitter that is subtracted from the roll time, in hours. Ignored if log.roll.jitter.ms is set.",
    at_least(0),
)
LOG_ROLL_JITTER_MS: ConfigKey[int] = ConfigKey(
    "log.roll.jitter.ms",
    ConfigType.LONG,
    0,
    "Largest jitter, in milliseconds, that is subtracted from the roll time of each segment, so that logs that were"
    " created together are not rolled together.",
    at_least(0),
    coarser=((LOG_ROLL_JITTER_HOURS, HOUR_MS),),
    dynamic=True,
)
LOG_INDEX_INTERVAL_BYTES: ConfigKey[int] = ConfigKey(
    "log.index.interval.bytes",
    ConfigType.INT,
    4096,
    "Bytes of log between two entries of the offset index. Fewer make lookups shorter and the index larger.",
    at_least(0),
    dynamic=True,
)
LOG_INDEX_SIZE_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "log.index.size.max.bytes",
    ConfigType.INT,
    10 << 20,
    "Largest size of an index file, in bytes. A segment whose index is full is rolled.",
    at_least(1024),
    dynamic=True,
)
LOG_FLUSH_INTERVAL_MESSAGES: ConfigKey[int] = ConfigKey(
    "log.flush.interval.messages",
    ConfigType.LONG,
    LONG_MAX,
    "Number of records after which a log is flushed to disk. By default durability is left to replication.",
    at_least(1),
    dynamic=True,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "log.flush.scheduler.interval.ms",
    ConfigType.LONG,
    LONG_MAX,
    "How often the broker checks which logs are due for a flush, in milliseconds; at most 1000 is used. It is also the"
    " flush interval if log.flush.interval.ms is not set.",
    at_least(1),
)
LOG_FLUSH_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "log.flush.interval.ms",
    ConfigType.LONG,
    LONG_MAX,
    "Longest time that a record stays in memory before its log is flushed to disk, in milliseconds.",
    at_least(0),
    coarser=((LOG_FLUSH_SCHEDULER_INTERVAL_MS, 1),),
    dynamic=True,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "log.flush.offset.checkpoint.interval.ms",
    ConfigType.INT,
    60_000,
    "How often the broker saves the recovery point of each log, in milliseconds. After a crash only the part behind it"
    " is scanned.",
    at_least(1),
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "log.flush.start.offset.checkpoint.interval.ms",
    ConfigType.INT,
    60_000,
    "How often the broker saves the log start offset of each log, in milliseconds. After a crash records that were"
    " deleted later than that are readable again.",
    at_least(1),
)
NUM_RECOVERY_THREADS_PER_DATA_DIR: ConfigKey[int] = ConfigKey(
    "num.recovery.threads.per.data.dir",
    ConfigType.INT,
    2,
    "Number of threads that recover logs after an unclean shutdown. More threads help on slow disks, but not if"
    " the CPU is the limit.",
    between(1, 1000),
)
LOG_DIR: ConfigKey[str | None] = ConfigKey(
    "log.dir",
    ConfigType.STRING,
    None,
    "The log directory of a broker. Ignored if log.dirs is set.",
)
LOG_DIRS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "log.dirs",
    ConfigType.LIST,
    (),
    "The log directories of a broker, which must differ from those of every other broker on its host. A new replica"
    " goes to the one with the fewest partitions, and a failed one takes only its replicas offline. The default is"
    " log.dir, and without it the directory of the broker in each data directory.",
    lambda value: None if len(set(value)) == len(value) else "must not name a directory twice",
)
LOG_DIR_FAILURE_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "log.dir.failure.timeout.ms",
    ConfigType.LONG,
    30_000,
    "Longest time, in milliseconds, for which a broker tries to report a failed log directory to the controller. Then"
    " it stops, so that other brokers lead its partitions.",
    at_least(1),
)
LOG_RETENTION_HOURS: ConfigKey[int] = ConfigKey(
    "log.retention.hours",
    ConfigType.INT,
    168,
    "Retention in hours, -1 for unlimited. Ignored if log.retention.ms or log.retention.minutes is set.",
    at_least(1, special=-1),
)
LOG_RETENTION_MINUTES: ConfigKey[int | None] = ConfigKey(
    "log.retention.minutes",
    ConfigType.INT,
    None,
    "Retention in minutes, -1 for unlimited. Ignored if log.retention.ms is set.",
    at_least(1, special=-1),
)
LOG_RETENTION_MS: ConfigKey[int] = ConfigKey(
    "log.retention.ms",
    ConfigType.LONG,
    604_800_000,
    "Retention in milliseconds: a segment is deleted when its newest record is older than this. -1 keeps segments for"
    " unlimited time.",
    at_least(1, special=-1),
    coarser=((LOG_RETENTION_MINUTES, MINUTE_MS), (LOG_RETENTION_HOURS, HOUR_MS)),
    dynamic=True,
)
LOG_RETENTION_BYTES: ConfigKey[int] = ConfigKey(
    "log.retention.bytes",
    ConfigType.LONG,
    -1,
    "Size of a partition, in bytes, beyond which its oldest segments are deleted. -1 sets no limit.",
    at_least(-1),
    dynamic=True,
)
LOG_RETENTION_CHECK_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "log.retention.check.interval.ms",
    ConfigType.LONG,
    300_000,
    "How often the broker checks which segments retention deletes, in milliseconds.",
    at_least(1),
)
LOG_SEGMENT_DELETE_DELAY_MS: ConfigKey[int] = ConfigKey(
    "log.segment.delete.delay.ms",
    ConfigType.LONG,
    60_000,
    "Time, in milliseconds, for which the files of a deleted segment or partition remain on disk, renamed to .deleted"
    " or -delete.",
    at_least(0),
    dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_TYPE: ConfigKey[str] = ConfigKey(
    "log.message.timestamp.type",
    ConfigType.STRING,
    "CreateTime",
    "Timestamp of a record: CreateTime keeps the producer's, LogAppendTime sets the broker's time of the append.",
    one_of("CreateTime", "LogAppendTime"),
    dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: ConfigKey[int] = ConfigKey(
    "log.message.timestamp.before.max.ms",
    ConfigType.LONG,
    LONG_MAX,
    "Longest time, in milliseconds, by which a record's CreateTime may be before the broker's clock. A record outside"
    " fails with INVALID_TIMESTAMP.",
    at_least(0),
    dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: ConfigKey[int] = ConfigKey(
    "log.message.timestamp.after.max.ms",
    ConfigType.LONG,
    3_600_000,
    "Longest time, in milliseconds, by which a record's CreateTime may be after the broker's clock. A record outside"
    " fails with INVALID_TIMESTAMP.",
    at_least(0),
    dynamic=True,
)
COMPRESSION_TYPE: ConfigKey[str] = ConfigKey(
    "compression.type",
    ConfigType.STRING,
    PRODUCER_COMPRESSION,
    "Codec in which batches are stored; the broker recompresses a batch that arrives in another one. producer stores"
    " batches as they arrive.",
    one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCER_COMPRESSION),
    dynamic=True,
)
COMPRESSION_GZIP_LEVEL: ConfigKey[int] = ConfigKey(
    "compression.gzip.level",
    ConfigType.INT,
    -1,
    "Level at which the broker compresses with gzip, from 1 to 9. -1 is zlib's default.",
    between(1, 9, special=-1),
    dynamic=True,
)
COMPRESSION_LZ4_LEVEL: ConfigKey[int] = ConfigKey(
    "compression.lz4.level",
    ConfigType.INT,
    9,
    "Level at which the broker compresses with lz4, from 1 to 17. As in Kafka, 9 selects the fast compressor.",
    between(1, 17),
    dynamic=True,
)
COMPRESSION_ZSTD_LEVEL: ConfigKey[int] = ConfigKey(
    "compression.zstd.level",
    ConfigType.INT,
    3,
    "Level at which the broker compresses with zstd, from -131072 to 22.",
    between(-131_072, 22),
    dynamic=True,
)


@dataclass(frozen=True, slots=True)
class LogDirSettings:
    """The log directories of a broker, and how often it looks after them, in milliseconds."""

    flush_check_interval_ms: int
    recovery_point_interval_ms: int
    log_start_offset_interval_ms: int
    retention_check_interval_ms: int
    recovery_threads: int
    failure_timeout_ms: int
    paths: tuple[str, ...]
    """Its log directories; empty if they are not configured."""


def log_dir_settings(configs: Configs) -> LogDirSettings:
    log_dir = configs[LOG_DIR]
    return LogDirSettings(
        flush_check_interval_ms=configs[LOG_FLUSH_SCHEDULER_INTERVAL_MS],
        recovery_point_interval_ms=configs[LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS],
        log_start_offset_interval_ms=configs[LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS],
        retention_check_interval_ms=configs[LOG_RETENTION_CHECK_INTERVAL_MS],
        recovery_threads=configs[NUM_RECOVERY_THREADS_PER_DATA_DIR],
        failure_timeout_ms=configs[LOG_DIR_FAILURE_TIMEOUT_MS],
        paths=configs[LOG_DIRS] or ((log_dir,) if log_dir is not None else ()),
    )
