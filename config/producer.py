"""A producer's keys, as in Kafka's Java client, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.config.client import CONNECTION_KEYS
from raylog.config.client_network import NETWORK_KEYS, NetworkSettings, network_settings
from raylog.config.large_messages import (
    LARGE_PRODUCER_KEYS,
    SEND_LARGE_MESSAGES,
    LargeSendSettings,
    large_send_settings,
)
from raylog.core.config import INT_MAX, ConfigKey, Configs, ConfigSchema, ConfigType, at_least, between, one_of
from raylog.core.errors import ConfigError

ACKS_ALL: Final = -1
IN_FLIGHT_MAX_OF_IDEMPOTENCE: Final = 5
"""Brokers remember this many batches of each producer and partition."""
ROUND_ROBIN: Final = "RoundRobinPartitioner"
_PACKAGE: Final = "org.apache.kafka.clients.producer."

ACKS: ConfigKey[str] = ConfigKey(
    "acks",
    ConfigType.STRING,
    "all",
    "Which replicas must have a record before it counts as sent: all (or -1) that are in sync, 1: the leader, 0: none,"
    " there is not even a response.",
    one_of("all", "-1", "0", "1"),
)
BATCH_SIZE: ConfigKey[int] = ConfigKey(
    "batch.size",
    ConfigType.INT,
    16_384,
    "Size in bytes, before compression, at which a batch of records for one partition is sent without waiting.",
    at_least(0),
)
LINGER_MS: ConfigKey[int] = ConfigKey(
    "linger.ms",
    ConfigType.LONG,
    5,
    "Time in milliseconds that a batch waits for further records.",
    at_least(0),
)
BUFFER_MEMORY: ConfigKey[int] = ConfigKey(
    "buffer.memory",
    ConfigType.LONG,
    33_554_432,
    "Bytes of records that wait to be sent. send() waits when they are used up.",
    at_least(0),
)
MAX_BLOCK_MS: ConfigKey[int] = ConfigKey(
    "max.block.ms",
    ConfigType.LONG,
    60_000,
    "Longest time in milliseconds that send() waits for metadata and for memory.",
    at_least(0),
)
METADATA_MAX_IDLE_MS: ConfigKey[int] = ConfigKey(
    "metadata.max.idle.ms",
    ConfigType.LONG,
    300_000,
    "Time in milliseconds without a record for a topic after which its metadata are not asked for any more.",
    at_least(5000),
)
MAX_REQUEST_SIZE: ConfigKey[int] = ConfigKey(
    "max.request.size",
    ConfigType.INT,
    1_048_576,
    "Largest request in bytes, and with it the largest record.",
    at_least(0),
)
MAX_IN_FLIGHT: ConfigKey[int] = ConfigKey(
    "max.in.flight.requests.per.connection",
    ConfigType.INT,
    5,
    "How many requests to one broker may wait for their responses.",
    at_least(1),
)
RETRIES: ConfigKey[int] = ConfigKey(
    "retries",
    ConfigType.INT,
    INT_MAX,
    "How often a batch is sent again after an error that may pass, within delivery.timeout.ms.",
    between(0, INT_MAX),
)
DELIVERY_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "delivery.timeout.ms",
    ConfigType.INT,
    120_000,
    "Time in milliseconds from send() in which a record is acknowledged or has failed.",
    at_least(0),
)
COMPRESSION_TYPE: ConfigKey[str] = ConfigKey(
    "compression.type",
    ConfigType.STRING,
    "none",
    "How batches are compressed.",
    one_of("none", "gzip", "snappy", "lz4", "zstd"),
)
ENABLE_IDEMPOTENCE: ConfigKey[bool] = ConfigKey(
    "enable.idempotence",
    ConfigType.BOOLEAN,
    True,
    "Whether retries neither duplicate nor reorder records (KIP-98). It requires acks=all, retries, and at most 5"
    " requests in flight.",
)
PARTITIONER_CLASS: ConfigKey[str] = ConfigKey(
    "partitioner.class",
    ConfigType.STRING,
    "",
    "Empty: records with a key go to the partition of its hash, others to one partition until a batch is full."
    f" {ROUND_ROBIN}: each record goes to the next partition, whatever its key.",
    lambda name: None if name.removeprefix(_PACKAGE) in ("", ROUND_ROBIN) else f"must be empty or {ROUND_ROBIN}",
)
PARTITIONER_IGNORE_KEYS: ConfigKey[bool] = ConfigKey(
    "partitioner.ignore.keys",
    ConfigType.BOOLEAN,
    False,
    "Whether records with a key are spread like those without.",
)
PARTITIONER_ADAPTIVE: ConfigKey[bool] = ConfigKey(
    "partitioner.adaptive.partitioning.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether records without a key go more often to partitions for which fewer batches wait (KIP-794).",
)
TRANSACTIONAL_ID: ConfigKey[str] = ConfigKey(
    "transactional.id",
    ConfigType.STRING,
    "",
    "Name under which the producer writes transactions; it fences former producers with the same name. Empty: no"
    " transactions. It requires idempotence.",
)
TRANSACTION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "transaction.timeout.ms",
    ConfigType.INT,
    60_000,
    "Time in milliseconds after which the coordinator aborts a transaction; at most the broker's"
    " transaction.max.timeout.ms.",
    at_least(1),
)

PRODUCER_KEYS: Final = (
    ACKS,
    BATCH_SIZE,
    LINGER_MS,
    BUFFER_MEMORY,
    MAX_BLOCK_MS,
    METADATA_MAX_IDLE_MS,
    MAX_REQUEST_SIZE,
    MAX_IN_FLIGHT,
    RETRIES,
    DELIVERY_TIMEOUT_MS,
    COMPRESSION_TYPE,
    ENABLE_IDEMPOTENCE,
    PARTITIONER_CLASS,
    PARTITIONER_IGNORE_KEYS,
    PARTITIONER_ADAPTIVE,
    TRANSACTIONAL_ID,
    TRANSACTION_TIMEOUT_MS,
    *LARGE_PRODUCER_KEYS,
)
PRODUCER_CONFIG: Final = ConfigSchema((*CONNECTION_KEYS, *NETWORK_KEYS, *PRODUCER_KEYS))


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Times in milliseconds, sizes in bytes."""

    network: NetworkSettings
    acks: int
    batch_bytes: int
    linger_ms: int
    buffer_bytes: int
    block_ms_max: int
    metadata_idle_ms_max: int
    request_bytes_max: int
    in_flight_max: int
    retries: int
    delivery_timeout_ms: int
    codec: str
    idempotent: bool
    round_robin: bool
    ignore_keys: bool
    adaptive: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    large: LargeSendSettings | None
    """None: a value is sent in one record."""


def producer_settings(configs: Configs) -> ProducerSettings:
    """Raises ConfigError for values that contradict each other."""
    network = network_settings(configs)
    return ProducerSettings(
        network=network,
        acks=_acks(configs[ACKS]),
        batch_bytes=configs[BATCH_SIZE],
        linger_ms=configs[LINGER_MS],
        buffer_bytes=configs[BUFFER_MEMORY],
        block_ms_max=configs[MAX_BLOCK_MS],
        metadata_idle_ms_max=configs[METADATA_MAX_IDLE_MS],
        request_bytes_max=configs[MAX_REQUEST_SIZE],
        in_flight_max=configs[MAX_IN_FLIGHT],
        retries=configs[RETRIES],
        delivery_timeout_ms=_at_least_one_request(configs, DELIVERY_TIMEOUT_MS, network.request_timeout_ms),
        codec=configs[COMPRESSION_TYPE],
        idempotent=_idempotent(configs, ENABLE_IDEMPOTENCE),
        round_robin=configs[PARTITIONER_CLASS].removeprefix(_PACKAGE) == ROUND_ROBIN,
        ignore_keys=configs[PARTITIONER_IGNORE_KEYS],
        adaptive=configs[PARTITIONER_ADAPTIVE],
        transactional_id=configs[TRANSACTIONAL_ID] or None,
        transaction_timeout_ms=configs[TRANSACTION_TIMEOUT_MS],
        large=_large(configs) if configs[SEND_LARGE_MESSAGES] else None,
    )


def _large(configs: Configs) -> LargeSendSettings:
    return large_send_settings(
        configs,
        idempotent=_idempotent(configs, ENABLE_IDEMPOTENCE),
        transactional=bool(configs[TRANSACTIONAL_ID]),
        record_bytes_max=min(configs[MAX_REQUEST_SIZE], configs[BUFFER_MEMORY]),
    )


def _acks(text: str) -> int:
    return ACKS_ALL if text == "all" else int(text)


def _at_least_one_request(configs: Configs, key: ConfigKey[int], request_timeout_ms: int) -> int:
    """A record may linger and be sent once within its time. Without a value of the user the default gives way."""
    least_ms = configs[LINGER_MS] + request_timeout_ms
    if configs[key] < least_ms and configs.is_set(key):
        raise ConfigError(f"{key.name}={configs[key]}: must be at least linger.ms + request.timeout.ms ({least_ms})")
    return max(configs[key], least_ms)


def _idempotent(configs: Configs, key: ConfigKey[bool]) -> bool:
    """As in Kafka, the default gives way to settings that exclude it; an explicit demand does not."""
    rules = (
        (_acks(configs[ACKS]) == ACKS_ALL, "acks=all"),
        (configs[RETRIES] > 0, "retries greater than 0"),
        (configs[MAX_IN_FLIGHT] <= IN_FLIGHT_MAX_OF_IDEMPOTENCE, f"{MAX_IN_FLIGHT.name} of at most 5"),
    )
    broken = next((rule for holds, rule in rules if not holds), None)
    if broken is not None and configs[key] and configs.is_set(key):
        raise ConfigError(f"{key.name}=true: requires {broken}")
    if configs[TRANSACTIONAL_ID] and not (configs[key] and broken is None):
        raise ConfigError(f"{TRANSACTIONAL_ID.name}: requires {broken or f'{key.name}=true'}")
    return configs[key] and broken is None
