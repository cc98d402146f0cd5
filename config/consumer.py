"""A consumer's keys, as in Kafka's Java client, and the settings that are made from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from raylog.config.client import CONNECTION_KEYS, ISOLATION_LEVEL
from raylog.config.client_network import NETWORK_KEYS, NetworkSettings, network_settings
from raylog.config.groups import CLASSIC, CONSUMER
from raylog.config.large_messages import (
    LARGE_CONSUMER_KEYS,
    RECEIVE_LARGE_MESSAGES,
    LargeReceiveSettings,
    large_receive_settings,
)
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigType, at_least, one_of
from raylog.core.errors import ConfigError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
NO_RESET: Final = "none"
BY_DURATION: Final = "by_duration:"
RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"
STICKY: Final = "sticky"
COOPERATIVE_STICKY: Final = "cooperative-sticky"
_CLASSES: Final = {
    "RangeAssignor": RANGE,
    "RoundRobinAssignor": ROUND_ROBIN,
    "StickyAssignor": STICKY,
    "CooperativeStickyAssignor": COOPERATIVE_STICKY,
}
_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?")


def _check_reset(text: str) -> str | None:
    if text in (EARLIEST, LATEST, NO_RESET) or duration_ms(text) is not None:
        return None
    return f"must be {EARLIEST}, {LATEST}, {NO_RESET} or {BY_DURATION}<ISO 8601 duration>, such as {BY_DURATION}PT1H"


def duration_ms(text: str) -> int | None:
    """The milliseconds of `by_duration:PnDTnHnMnS` (KIP-1106); None for anything else."""
    match = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
    if match is None or not any(match.groups()) or text.endswith("T"):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int(1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days))))


GROUP_ID: ConfigKey[str] = ConfigKey(
    "group.id",
    ConfigType.STRING,
    "",
    "The consumer's group: it shares the partitions among its members, and keeps the committed offsets.",
)
GROUP_INSTANCE_ID: ConfigKey[str] = ConfigKey(
    "group.instance.id",
    ConfigType.STRING,
    "",
    "Name of this member that outlives it: one that returns in time gets its partitions without a rebalance (KIP-345).",
)
GROUP_PROTOCOL: ConfigKey[str] = ConfigKey(
    "group.protocol",
    ConfigType.STRING,
    CLASSIC,
    "The rebalance protocol: classic, where a member of the group assigns the partitions, or consumer, where its"
    " coordinator does (KIP-848). With consumer, session.timeout.ms, heartbeat.interval.ms and"
    " partition.assignment.strategy cannot be set: the brokers have these settings.",
    one_of(CLASSIC, CONSUMER),
)
GROUP_REMOTE_ASSIGNOR: ConfigKey[str] = ConfigKey(
    "group.remote.assignor",
    ConfigType.STRING,
    "",
    "With group.protocol=consumer: the assignor of the coordinator, such as uniform or range. Empty: its default.",
)
CLIENT_RACK: ConfigKey[str] = ConfigKey(
    "client.rack",
    ConfigType.STRING,
    "",
    "Where the consumer runs: it reads from a replica in the same rack, if the brokers choose by rack (KIP-392).",
)
AUTO_OFFSET_RESET: ConfigKey[str] = ConfigKey(
    "auto.offset.reset",
    ConfigType.STRING,
    LATEST,
    "Where to begin in a partition without a committed offset, or where that offset does not exist any more: earliest,"
    " latest, none (an error), or by_duration:PT1H for the records of the last hour.",
    _check_reset,
)
ENABLE_AUTO_COMMIT: ConfigKey[bool] = ConfigKey(
    "enable.auto.commit",
    ConfigType.BOOLEAN,
    True,
    "Whether poll() commits the offsets of the records that it returned before.",
)
AUTO_COMMIT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "auto.commit.interval.ms",
    ConfigType.INT,
    5_000,
    "Time in milliseconds between automatic commits.",
    at_least(0),
)
SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "session.timeout.ms",
    ConfigType.INT,
    45_000,
    "Time in milliseconds without a heartbeat after which the group goes on without this member.",
    at_least(1),
)
HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "heartbeat.interval.ms",
    ConfigType.INT,
    3_000,
    "Time in milliseconds between heartbeats.",
    at_least(1),
)
MAX_POLL_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "max.poll.interval.ms",
    ConfigType.INT,
    300_000,
    "Longest time in milliseconds between calls of poll(): after it the consumer leaves its group.",
    at_least(1),
)
MAX_POLL_RECORDS: ConfigKey[int] = ConfigKey(
    "max.poll.records", ConfigType.INT, 500, "How many records one poll() returns at most.", at_least(1)
)
FETCH_MIN_BYTES: ConfigKey[int] = ConfigKey(
    "fetch.min.bytes", ConfigType.INT, 1, "A broker waits until it has this many bytes to send.", at_least(0)
)
FETCH_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "fetch.max.bytes",
    ConfigType.INT,
    52_428_800,
    "Most bytes of one response, unless its first batch is larger.",
    at_least(0),
)
FETCH_MAX_WAIT_MS: ConfigKey[int] = ConfigKey(
    "fetch.max.wait.ms",
    ConfigType.INT,
    500,
    "Longest time in milliseconds that a broker waits for fetch.min.bytes.",
    at_least(0),
)
MAX_PARTITION_FETCH_BYTES: ConfigKey[int] = ConfigKey(
    "max.partition.fetch.bytes",
    ConfigType.INT,
    1_048_576,
    "Most bytes of one partition in a response, unless its first batch is larger.",
    at_least(0),
)
CHECK_CRCS: ConfigKey[bool] = ConfigKey(
    "check.crcs", ConfigType.BOOLEAN, True, "Whether the checksum of each batch is verified."
)
ALLOW_AUTO_CREATE_TOPICS: ConfigKey[bool] = ConfigKey(
    "allow.auto.create.topics",
    ConfigType.BOOLEAN,
    True,
    "Whether a topic that is subscribed or assigned by name may be created, if the brokers do so.",
)
EXCLUDE_INTERNAL_TOPICS: ConfigKey[bool] = ConfigKey(
    "exclude.internal.topics",
    ConfigType.BOOLEAN,
    True,
    "Whether a subscription by pattern leaves out internal topics.",
)
PARTITION_ASSIGNMENT_STRATEGY: ConfigKey[str] = ConfigKey(
    "partition.assignment.strategy",
    ConfigType.STRING,
    f"{RANGE},{COOPERATIVE_STICKY}",
    f"How partitions are shared among the members, the most wanted way first: {RANGE}, {ROUND_ROBIN}, {STICKY},"
    f" {COOPERATIVE_STICKY}, or the names of Kafka's classes.",
)
DEFAULT_API_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "default.api.timeout.ms",
    ConfigType.INT,
    60_000,
    "Longest time in milliseconds that a call waits which has no timeout of its own.",
    at_least(0),
)

CONSUMER_KEYS: Final = (
    ISOLATION_LEVEL,
    GROUP_ID,
    GROUP_INSTANCE_ID,
    GROUP_PROTOCOL,
    GROUP_REMOTE_ASSIGNOR,
    CLIENT_RACK,
    AUTO_OFFSET_RESET,
    ENABLE_AUTO_COMMIT,
    AUTO_COMMIT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    HEARTBEAT_INTERVAL_MS,
    MAX_POLL_INTERVAL_MS,
    MAX_POLL_RECORDS,
    FETCH_MIN_BYTES,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    MAX_PARTITION_FETCH_BYTES,
    CHECK_CRCS,
    ALLOW_AUTO_CREATE_TOPICS,
    EXCLUDE_INTERNAL_TOPICS,
    PARTITION_ASSIGNMENT_STRATEGY,
    DEFAULT_API_TIMEOUT_MS,
    *LARGE_CONSUMER_KEYS,
)
_OF_OTHER_PROTOCOL: Final[dict[str, tuple[ConfigKey[Any], ...]]] = {
    CLASSIC: (GROUP_REMOTE_ASSIGNOR,),
    CONSUMER: (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS, PARTITION_ASSIGNMENT_STRATEGY),
}
CONSUMER_CONFIG: Final = ConfigSchema((*CONNECTION_KEYS, *NETWORK_KEYS, *CONSUMER_KEYS))


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Times in milliseconds, sizes in bytes."""

    network: NetworkSettings
    committed: bool
    """Whether the isolation level is read_committed."""
    group_id: str
    """Empty: no group."""
    instance_id: str | None
    by_coordinator: bool
    """Whether group.protocol is consumer."""
    remote_assignor: str
    rack: str
    reset: str
    """EARLIEST, LATEST, NO_RESET or a duration."""
    auto_commit: bool
    auto_commit_ms: int
    session_ms: int
    heartbeat_ms: int
    poll_ms_max: int
    poll_records: int
    fetch_bytes_min: int
    fetch_bytes_max: int
    fetch_wait_ms: int
    partition_bytes_max: int
    check_crcs: bool
    create_topics: bool
    exclude_internal: bool
    assignors: tuple[str, ...]
    api_timeout_ms: int
    large: LargeReceiveSettings | None
    """None: chunks are returned as they are."""


def consumer_settings(configs: Configs) -> ConsumerSettings:
    """Raises ConfigError for values that contradict each other."""
    group_id = configs[GROUP_ID]
    protocol = configs[GROUP_PROTOCOL]
    for key in _OF_OTHER_PROTOCOL[protocol]:
        if configs.is_set(key):
            raise ConfigError(f"{key.name} cannot be set when {GROUP_PROTOCOL.name}={protocol}")
    if configs[HEARTBEAT_INTERVAL_MS] >= configs[SESSION_TIMEOUT_MS]:
        limit = f"must be less than {SESSION_TIMEOUT_MS.name} ({configs[SESSION_TIMEOUT_MS]})"
        raise ConfigError(f"{HEARTBEAT_INTERVAL_MS.name}={configs[HEARTBEAT_INTERVAL_MS]}: {limit}")
    if not group_id and configs[ENABLE_AUTO_COMMIT] and configs.is_set(ENABLE_AUTO_COMMIT):
        raise ConfigError(f"{ENABLE_AUTO_COMMIT.name}=true: requires {GROUP_ID.name}")
    return ConsumerSettings(
        network=network_settings(configs),
        committed=configs[ISOLATION_LEVEL] == "read_committed",
        group_id=group_id,
        instance_id=configs[GROUP_INSTANCE_ID] or None,
        by_coordinator=protocol == CONSUMER,
        remote_assignor=configs[GROUP_REMOTE_ASSIGNOR],
        rack=configs[CLIENT_RACK],
        reset=configs[AUTO_OFFSET_RESET],
        auto_commit=bool(group_id) and configs[ENABLE_AUTO_COMMIT],
        auto_commit_ms=configs[AUTO_COMMIT_INTERVAL_MS],
        session_ms=configs[SESSION_TIMEOUT_MS],
        heartbeat_ms=configs[HEARTBEAT_INTERVAL_MS],
        poll_ms_max=configs[MAX_POLL_INTERVAL_MS],
        poll_records=configs[MAX_POLL_RECORDS],
        fetch_bytes_min=configs[FETCH_MIN_BYTES],
        fetch_bytes_max=configs[FETCH_MAX_BYTES],
        fetch_wait_ms=configs[FETCH_MAX_WAIT_MS],
        partition_bytes_max=configs[MAX_PARTITION_FETCH_BYTES],
        check_crcs=configs[CHECK_CRCS],
        create_topics=configs[ALLOW_AUTO_CREATE_TOPICS],
        exclude_internal=configs[EXCLUDE_INTERNAL_TOPICS],
        assignors=_assignors(configs[PARTITION_ASSIGNMENT_STRATEGY]),
        api_timeout_ms=configs[DEFAULT_API_TIMEOUT_MS],
        large=large_receive_settings(configs) if configs[RECEIVE_LARGE_MESSAGES] else None,
    )


def _assignors(text: str) -> tuple[str, ...]:
    """Raises ConfigError."""
    names = [name.strip().removeprefix(_PACKAGE) for name in text.split(",") if name.strip()]
    known = [_CLASSES.get(name, name) for name in names]
    if not known or not set(known) <= set(_CLASSES.values()) or len(set(known)) < len(known):
        may = ", ".join(_CLASSES.values())
        raise ConfigError(f"{PARTITION_ASSIGNMENT_STRATEGY.name}={text!r}: must be one or several of {may}")
    return tuple(known)
