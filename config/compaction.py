"""Compaction: the keys of the log cleaner, and the settings that are made from them.

What one log takes from its topic's keys is `LogSettings`, in logstore/settings.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from raylog.core.config import LONG_MAX, ConfigKey, Configs, ConfigType, at_least, between

COMPACT: Final = "compact"
DELETE: Final = "delete"
CLEANER_THREADS_MAX: Final = 64

LOG_CLEANUP_POLICY: ConfigKey[tuple[str, ...]] = ConfigKey(
    "log.cleanup.policy",
    ConfigType.LIST,
    (DELETE,),
    "What happens to old segments: delete removes them by retention time and size, compact keeps only the latest record"
    " of each key, compact,delete does both. If empty, all segments are kept (KIP-1161).",
    lambda value: None if set(value) <= {COMPACT, DELETE} else "must be compact, delete, compact,delete or empty",
    dynamic=True,
)
LOG_CLEANER_ENABLE: ConfigKey[bool] = ConfigKey(
    "log.cleaner.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether logs with the cleanup policy compact are cleaned. Internal topics grow without limit if not.",
)
LOG_CLEANER_THREADS: ConfigKey[int] = ConfigKey(
    "log.cleaner.threads",
    ConfigType.INT,
    1,
    "How many logs of a broker are cleaned at a time, each in a process of its own.",
    between(0, CLEANER_THREADS_MAX),
    dynamic=True,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: ConfigKey[int] = ConfigKey(
    "log.cleaner.dedupe.buffer.size",
    ConfigType.LONG,
    128 << 20,
    "Memory for the keys of all logs that are being cleaned, in bytes; a key takes 24. No more than needed is used.",
    at_least(1 << 20),
    dynamic=True,
)
LOG_CLEANER_IO_BUFFER_SIZE: ConfigKey[int] = ConfigKey(
    "log.cleaner.io.buffer.size",
    ConfigType.INT,
    512 << 10,
    "How much of a segment is read or written at a time, in bytes, over all logs that are being cleaned.",
    at_least(0),
    dynamic=True,
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR: ConfigKey[float] = ConfigKey(
    "log.cleaner.io.buffer.load.factor",
    ConfigType.DOUBLE,
    0.9,
    "How full the memory for keys may be. With a higher value more is cleaned at once, at a higher cost per key.",
    between(0, 1),
    dynamic=True,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND: ConfigKey[float] = ConfigKey(
    "log.cleaner.io.max.bytes.per.second",
    ConfigType.DOUBLE,
    sys.float_info.max,
    "Limit of the bytes that cleaning reads and writes per second, over all logs.",
    at_least(1),
    dynamic=True,
)
LOG_CLEANER_BACKOFF_MS: ConfigKey[int] = ConfigKey(
    "log.cleaner.backoff.ms",
    ConfigType.LONG,
    15_000,
    "How often the broker looks for logs to clean, in milliseconds.",
    at_least(0),
    dynamic=True,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO: ConfigKey[float] = ConfigKey(
    "log.cleaner.min.cleanable.ratio",
    ConfigType.DOUBLE,
    0.5,
    "A log is cleaned when the share of it that is not cleaned yet is larger than this.",
    between(0, 1),
    dynamic=True,
)
LOG_CLEANER_DELETE_RETENTION_MS: ConfigKey[int] = ConfigKey(
    "log.cleaner.delete.retention.ms",
    ConfigType.LONG,
    86_400_000,
    "How long a tombstone stays in a cleaned log, in milliseconds. A reader that begins at the start of the log must"
    " reach its end within this time to see every deletion.",
    at_least(0),
    dynamic=True,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS: ConfigKey[int] = ConfigKey(
    "log.cleaner.min.compaction.lag.ms",
    ConfigType.LONG,
    0,
    "Time for which a record is not compacted, in milliseconds.",
    at_least(0),
    dynamic=True,
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS: ConfigKey[int] = ConfigKey(
    "log.cleaner.max.compaction.lag.ms",
    ConfigType.LONG,
    LONG_MAX,
    "Age of a record, in milliseconds, at which its log is cleaned whatever share of it is dirty. A segment is rolled"
    " after this time too.",
    at_least(1),
    dynamic=True,
)


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """How a broker cleans its logs. The buffers and the limit are those of all cleanings together."""

    enabled: bool
    threads: int
    dedupe_bytes: int
    io_bytes: int
    load_factor: float
    io_bytes_per_second: float
    backoff_ms: int


def cleaner_settings(configs: Configs) -> CleanerSettings:
    return CleanerSettings(
        enabled=configs[LOG_CLEANER_ENABLE],
        threads=configs[LOG_CLEANER_THREADS],
        dedupe_bytes=configs[LOG_CLEANER_DEDUPE_BUFFER_SIZE],
        io_bytes=configs[LOG_CLEANER_IO_BUFFER_SIZE],
        load_factor=configs[LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
        io_bytes_per_second=configs[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        backoff_ms=configs[LOG_CLEANER_BACKOFF_MS],
    )
