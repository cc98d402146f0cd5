"""Keys of producers and consumers for large messages. Most have the names of LinkedIn's clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.config import INT_MAX, ConfigKey, Configs, ConfigType, at_least, between
from raylog.core.errors import ConfigError

ENVELOPE_BYTES: Final = 1_024
"""Room for what a chunk has beside a piece of the value; keys and headers of the program come on top."""

SEND_LARGE_MESSAGES: ConfigKey[bool] = ConfigKey(
    "large.message.enabled",
    ConfigType.BOOLEAN,
    False,
    "Whether a value larger than max.message.segment.bytes is split into chunk records, which a consumer with this"
    " setting reassembles. The value may then be a binary file. Splitting requires idempotence.",
)
SEGMENT_BYTES: ConfigKey[int] = ConfigKey(
    "max.message.segment.bytes",
    ConfigType.INT,
    819_200,
    "Bytes of a value in one chunk. A chunk must fit into max.request.size and into the topic's max.message.bytes.",
    at_least(1),
)
COMPACTED_SEGMENTS: ConfigKey[int] = ConfigKey(
    "large.message.compacted.segments",
    ConfigType.INT,
    0,
    "For compacted topics: most chunks of a value. Each chunk has a key of its own, and each record with a key is"
    " followed by tombstones for the chunks of a larger former value. 0: topics are not compacted. It requires"
    " transactional.id.",
    between(0, 10_000),
)
RECEIVE_LARGE_MESSAGES: ConfigKey[bool] = ConfigKey(
    "large.message.enabled",
    ConfigType.BOOLEAN,
    False,
    "Whether poll() returns a value that was sent in chunks as one record. Commits without offsets then never pass the"
    " first chunk of a message that is not complete.",
)
ASSEMBLER_BYTES: ConfigKey[int] = ConfigKey(
    "message.assembler.buffer.capacity",
    ConfigType.LONG,
    268_435_456,
    "Bytes of all unfinished large messages together. The oldest ones are dropped for a new one; a value that is larger"
    " by itself is dropped.",
    at_least(1),
)
ASSEMBLER_OFFSETS: ConfigKey[int] = ConfigKey(
    "message.assembler.expiration.offset.gap",
    ConfigType.LONG,
    100_000,
    "Offsets between the first chunk of an unfinished large message and the position, above which it is dropped.",
    at_least(1),
)
ASSEMBLER_MS: ConfigKey[int] = ConfigKey(
    "message.assembler.expiration.ms",
    ConfigType.LONG,
    600_000,
    "Time in milliseconds after which an unfinished large message is dropped.",
    at_least(1),
)
TRACKED_MESSAGES: ConfigKey[int] = ConfigKey(
    "max.tracked.messages.per.partition",
    ConfigType.INT,
    500,
    "Unfinished large messages of a partition, above which the oldest is dropped; and how many complete ones are"
    " remembered for seek().",
    between(1, INT_MAX),
)
RAISE_DROPPED: ConfigKey[bool] = ConfigKey(
    "exception.on.message.dropped",
    ConfigType.BOOLEAN,
    False,
    "Whether poll() raises LargeMessageDroppedError for each large message that is dropped. They are logged and"
    " counted in any case.",
)

SEND_STORE_URL: ConfigKey[str] = ConfigKey(
    "large.message.store.url",
    ConfigType.STRING,
    "",
    "With large.message.enabled: where values larger than max.message.segment.bytes are written, as a URL of fsspec,"
    " such as file:///data/values; the record then refers to the value. Empty: values are split. It requires the extra"
    " `store`.",
)
RECEIVE_STORE_URL: ConfigKey[str] = ConfigKey(
    "large.message.store.url",
    ConfigType.STRING,
    "",
    "Where the producers write large values, as a URL of fsspec. Empty: a record that refers to a value is an error.",
)

LARGE_PRODUCER_KEYS: Final = (SEND_LARGE_MESSAGES, SEGMENT_BYTES, COMPACTED_SEGMENTS, SEND_STORE_URL)
LARGE_CONSUMER_KEYS: Final = (
    RECEIVE_LARGE_MESSAGES,
    RECEIVE_STORE_URL,
    ASSEMBLER_BYTES,
    ASSEMBLER_OFFSETS,
    ASSEMBLER_MS,
    TRACKED_MESSAGES,
    RAISE_DROPPED,
)


@dataclass(frozen=True, slots=True)
class LargeSendSettings:
    """How a producer sends large messages."""

    segment_bytes: int
    indexes_max: int | None
    """Most chunks of a value in a compacted topic; None: topics are not compacted."""
    store_url: str
    """Empty: values are split."""


@dataclass(frozen=True, slots=True)
class LargeReceiveSettings:
    """How a consumer receives large messages. Times in milliseconds, sizes in bytes."""

    store_url: str
    """Empty: no values are fetched."""
    assembler_bytes: int
    offset_gap_max: int
    age_ms_max: int
    tracked_max: int
    raises: bool


def large_send_settings(
    configs: Configs, *, idempotent: bool, transactional: bool, record_bytes_max: int
) -> LargeSendSettings:
    """Raises ConfigError."""
    if not idempotent and not configs[SEND_STORE_URL]:
        raise ConfigError(
            f"{SEND_LARGE_MESSAGES.name}=true: requires enable.idempotence=true, so that chunks stay in order"
        )
    segments = configs[COMPACTED_SEGMENTS]
    if segments and configs[SEND_STORE_URL]:
        raise ConfigError(f"{COMPACTED_SEGMENTS.name}={segments}: values are not split with {SEND_STORE_URL.name}")
    if segments and not transactional:
        raise ConfigError(f"{COMPACTED_SEGMENTS.name}={segments}: requires transactional.id")
    limit = record_bytes_max - ENVELOPE_BYTES
    size = configs[SEGMENT_BYTES]
    if size > limit and configs.is_set(SEGMENT_BYTES):
        what = f"must be at most max.request.size and buffer.memory less {ENVELOPE_BYTES} bytes for headers ({limit})"
        raise ConfigError(f"{SEGMENT_BYTES.name}={size}: {what}")
    return LargeSendSettings(
        segment_bytes=max(1, min(configs[SEGMENT_BYTES], limit)),
        indexes_max=configs[COMPACTED_SEGMENTS] or None,
        store_url=configs[SEND_STORE_URL],
    )


def large_receive_settings(configs: Configs) -> LargeReceiveSettings:
    return LargeReceiveSettings(
        store_url=configs[RECEIVE_STORE_URL],
        assembler_bytes=configs[ASSEMBLER_BYTES],
        offset_gap_max=configs[ASSEMBLER_OFFSETS],
        age_ms_max=configs[ASSEMBLER_MS],
        tracked_max=configs[TRACKED_MESSAGES],
        raises=configs[RAISE_DROPPED],
    )
