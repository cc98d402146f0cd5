"""A share consumer's keys, as in Kafka's Java client, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.config.client import CONNECTION_KEYS
from raylog.config.client_network import NETWORK_KEYS, NetworkSettings, network_settings
from raylog.config.consumer import (
    ALLOW_AUTO_CREATE_TOPICS,
    CHECK_CRCS,
    DEFAULT_API_TIMEOUT_MS,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    FETCH_MIN_BYTES,
    MAX_POLL_INTERVAL_MS,
    MAX_POLL_RECORDS,
)
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigType, one_of
from raylog.core.errors import ConfigError

IMPLICIT: Final = "implicit"
EXPLICIT: Final = "explicit"
BATCH_OPTIMIZED: Final = "batch_optimized"
RECORD_LIMIT: Final = "record_limit"

SHARE_GROUP_ID: ConfigKey[str] = ConfigKey(
    "group.id", ConfigType.STRING, "", "The share group, whose members share the records of its topics. Required."
)
SHARE_CLIENT_RACK: ConfigKey[str] = ConfigKey(
    "client.rack", ConfigType.STRING, "", "Where the consumer runs; the coordinator of the group shows it."
)
SHARE_ACKNOWLEDGEMENT_MODE: ConfigKey[str] = ConfigKey(
    "share.acknowledgement.mode",
    ConfigType.STRING,
    IMPLICIT,
    "implicit: poll() and commit_sync() accept the records that poll() returned before. explicit: the program"
    " acknowledges each record before it polls again.",
    one_of(IMPLICIT, EXPLICIT),
)
SHARE_ACQUIRE_MODE: ConfigKey[str] = ConfigKey(
    "share.acquire.mode",
    ConfigType.STRING,
    BATCH_OPTIMIZED,
    "batch_optimized: brokers hand out whole batches, and more than max.poll.records records may be acquired at once."
    " record_limit: never more (KIP-1206).",
    one_of(BATCH_OPTIMIZED, RECORD_LIMIT),
)

SHARE_CONSUMER_KEYS: Final = (
    SHARE_GROUP_ID,
    SHARE_CLIENT_RACK,
    SHARE_ACKNOWLEDGEMENT_MODE,
    SHARE_ACQUIRE_MODE,
    MAX_POLL_INTERVAL_MS,
    MAX_POLL_RECORDS,
    FETCH_MIN_BYTES,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    CHECK_CRCS,
    ALLOW_AUTO_CREATE_TOPICS,
    DEFAULT_API_TIMEOUT_MS,
)
SHARE_CONSUMER_CONFIG: Final = ConfigSchema((*CONNECTION_KEYS, *NETWORK_KEYS, *SHARE_CONSUMER_KEYS))


@dataclass(frozen=True, slots=True)
class ShareConsumerSettings:
    """Times in milliseconds, sizes in bytes."""

    network: NetworkSettings
    group_id: str
    rack: str
    explicit: bool
    """Whether the program acknowledges each record."""
    record_limit: bool
    """Whether no more than `poll_records` records are acquired at once."""
    poll_ms_max: int
    poll_records: int
    fetch_bytes_min: int
    fetch_bytes_max: int
    fetch_wait_ms: int
    check_crcs: bool
    create_topics: bool
    api_timeout_ms: int


def share_consumer_settings(configs: Configs) -> ShareConsumerSettings:
    """Raises ConfigError without a group."""
    if not configs[SHARE_GROUP_ID]:
        raise ConfigError(f"{SHARE_GROUP_ID.name}: must be set")
    return ShareConsumerSettings(
        network=network_settings(configs),
        group_id=configs[SHARE_GROUP_ID],
        rack=configs[SHARE_CLIENT_RACK],
        explicit=configs[SHARE_ACKNOWLEDGEMENT_MODE] == EXPLICIT,
        record_limit=configs[SHARE_ACQUIRE_MODE] == RECORD_LIMIT,
        poll_ms_max=configs[MAX_POLL_INTERVAL_MS],
        poll_records=configs[MAX_POLL_RECORDS],
        fetch_bytes_min=configs[FETCH_MIN_BYTES],
        fetch_bytes_max=configs[FETCH_MAX_BYTES],
        fetch_wait_ms=configs[FETCH_MAX_WAIT_MS],
        check_crcs=configs[CHECK_CRCS],
        create_topics=configs[ALLOW_AUTO_CREATE_TOPICS],
        api_timeout_ms=configs[DEFAULT_API_TIMEOUT_MS],
    )
