"""Limits on single requests: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.core.config import ConfigKey, Configs, ConfigType, at_least

FETCH_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "fetch.max.bytes",
    ConfigType.INT,
    57_671_680,
    "Most bytes of records in a response to Fetch, whatever the client asks for. A first batch that is larger is"
    " returned whole.",
    at_least(1024),
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: ConfigKey[int] = ConfigKey(
    "max.incremental.fetch.session.cache.slots",
    ConfigType.INT,
    1000,
    "Largest number of incremental fetch sessions that the broker keeps. Clients without one send full requests; 0"
    " disables sessions.",
    at_least(0),
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: ConfigKey[int] = ConfigKey(
    "max.request.partition.size.limit",
    ConfigType.INT,
    2000,
    "Largest number of partitions in a response to DescribeTopicPartitions. Clients request the rest with a cursor.",
    at_least(1),
)
RAYLOG_SLOW_REQUEST_MS: ConfigKey[int] = ConfigKey(
    "raylog.slow.request.ms",
    ConfigType.INT,
    1000,
    "A request that takes this many milliseconds from its arrival to its response is logged by raylog.requests, with"
    " the client and the time of each phase, and shown by `raylog events`. Waits that the client asked for, such as a"
    " consumer's for new records, do not count. -1: none is logged.",
    at_least(-1),
    dynamic=True,
)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    fetch_bytes_max: int
    fetch_sessions_max: int
    described_partitions_max: int
    """In one response to DescribeTopicPartitions."""
    slow_ms: int
    """Requests that take this long are logged; -1: none."""


def request_limits(configs: Configs) -> RequestLimits:
    return RequestLimits(
        fetch_bytes_max=configs[FETCH_MAX_BYTES],
        fetch_sessions_max=configs[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
        described_partitions_max=configs[MAX_REQUEST_PARTITION_SIZE_LIMIT],
        slow_ms=configs[RAYLOG_SLOW_REQUEST_MS],
    )
