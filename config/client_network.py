"""How a client of raylog keeps connections and metadata: Kafka's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.config import ConfigKey, Configs, ConfigType, at_least, one_of

REBOOTSTRAP: Final = "rebootstrap"

CLIENT_ID: ConfigKey[str] = ConfigKey(
    "client.id", ConfigType.STRING, "raylog", "Name of the client in the brokers' logs, metrics and quotas."
)
REQUEST_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "request.timeout.ms",
    ConfigType.INT,
    30_000,
    "Time in milliseconds after which a request without a response fails; its connection is then closed.",
    at_least(1),
)
RETRY_BACKOFF_MS: ConfigKey[int] = ConfigKey(
    "retry.backoff.ms",
    ConfigType.LONG,
    100,
    "Pause in milliseconds before the first retry of a request; it doubles with each further one (KIP-580).",
    at_least(0),
)
RETRY_BACKOFF_MAX_MS: ConfigKey[int] = ConfigKey(
    "retry.backoff.max.ms", ConfigType.LONG, 1_000, "Longest pause between retries, in milliseconds.", at_least(0)
)
RECONNECT_BACKOFF_MS: ConfigKey[int] = ConfigKey(
    "reconnect.backoff.ms",
    ConfigType.LONG,
    50,
    "Pause in milliseconds before the second attempt to connect to a broker; it doubles with each further one.",
    at_least(0),
)
RECONNECT_BACKOFF_MAX_MS: ConfigKey[int] = ConfigKey(
    "reconnect.backoff.max.ms",
    ConfigType.LONG,
    1_000,
    "Longest pause between attempts to connect to a broker, in milliseconds.",
    at_least(0),
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "socket.connection.setup.timeout.ms",
    ConfigType.LONG,
    10_000,
    "Time in milliseconds in which a connection must be made, and again in which the client must have logged in.",
    at_least(1),
)
CONNECTIONS_MAX_IDLE_MS: ConfigKey[int] = ConfigKey(
    "connections.max.idle.ms",
    ConfigType.LONG,
    540_000,
    "Time in milliseconds after which a connection without requests is closed; negative: never.",
)
METADATA_MAX_AGE_MS: ConfigKey[int] = ConfigKey(
    "metadata.max.age.ms",
    ConfigType.LONG,
    300_000,
    "Time in milliseconds after which the client asks for metadata again even if nothing has failed.",
    at_least(0),
)
METADATA_RECOVERY_STRATEGY: ConfigKey[str] = ConfigKey(
    "metadata.recovery.strategy",
    ConfigType.STRING,
    REBOOTSTRAP,
    "rebootstrap: a client that reaches none of the brokers it knows begins again with bootstrap.servers (KIP-899)."
    " none: it goes on trying those that it knows.",
    one_of("none", REBOOTSTRAP),
)

NETWORK_KEYS: Final = (
    CLIENT_ID,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MS,
    RECONNECT_BACKOFF_MAX_MS,
    SOCKET_CONNECTION_SETUP_TIMEOUT_MS,
    CONNECTIONS_MAX_IDLE_MS,
    METADATA_MAX_AGE_MS,
    METADATA_RECOVERY_STRATEGY,
)


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Times in milliseconds."""

    client_id: str = CLIENT_ID.default
    request_timeout_ms: int = REQUEST_TIMEOUT_MS.default
    retry_backoff_ms: int = RETRY_BACKOFF_MS.default
    retry_backoff_ms_max: int = RETRY_BACKOFF_MAX_MS.default
    reconnect_backoff_ms: int = RECONNECT_BACKOFF_MS.default
    reconnect_backoff_ms_max: int = RECONNECT_BACKOFF_MAX_MS.default
    setup_timeout_ms: int = SOCKET_CONNECTION_SETUP_TIMEOUT_MS.default
    idle_ms_max: int | None = CONNECTIONS_MAX_IDLE_MS.default
    """None: connections without requests stay open."""
    metadata_age_ms_max: int = METADATA_MAX_AGE_MS.default
    rebootstrap: bool = True


def network_settings(configs: Configs) -> NetworkSettings:
    idle_ms = configs[CONNECTIONS_MAX_IDLE_MS]
    return NetworkSettings(
        client_id=configs[CLIENT_ID],
        request_timeout_ms=configs[REQUEST_TIMEOUT_MS],
        retry_backoff_ms=configs[RETRY_BACKOFF_MS],
        retry_backoff_ms_max=configs[RETRY_BACKOFF_MAX_MS],
        reconnect_backoff_ms=configs[RECONNECT_BACKOFF_MS],
        reconnect_backoff_ms_max=configs[RECONNECT_BACKOFF_MAX_MS],
        setup_timeout_ms=configs[SOCKET_CONNECTION_SETUP_TIMEOUT_MS],
        idle_ms_max=None if idle_ms < 0 else idle_ms,
        metadata_age_ms_max=configs[METADATA_MAX_AGE_MS],
        rebootstrap=configs[METADATA_RECOVERY_STRATEGY] == REBOOTSTRAP,
    )
