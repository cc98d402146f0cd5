"""Listeners, sockets and connections: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.config.authentication import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS, SASL_SERVER_MAX_RECEIVE_SIZE
from raylog.config.quotas import quota_settings
from raylog.core.addresses import canonical_address
from raylog.core.config import INT_MAX, ConfigKey, Configs, ConfigType, at_least, between

LISTENERS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "listeners",
    ConfigType.LIST,
    ("PLAINTEXT://127.0.0.1:9092",),
    "Comma-separated list of NAME://host:port on which the broker listens. An empty host stands for all interfaces,"
    " port 0 for any free port.",
)
ADVERTISED_LISTENERS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "advertised.listeners",
    ConfigType.LIST,
    (),
    "Comma-separated list of NAME://host:port that clients use to connect. A listener that is not in the list is"
    " advertised at the address on which it listens.",
)
LISTENER_SECURITY_PROTOCOL_MAP: ConfigKey[tuple[str, ...]] = ConfigKey(
    "listener.security.protocol.map",
    ConfigType.LIST,
    ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL", "INTERNAL:PLAINTEXT"),
    "Comma-separated list of NAME:PROTOCOL, the security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or"
    " SASL_SSL. A listener that is not in the list uses the protocol of its own name.",
)
INTER_BROKER_LISTENER_NAME: ConfigKey[str] = ConfigKey(
    "inter.broker.listener.name",
    ConfigType.STRING,
    "INTERNAL",
    "Name of the listener for traffic between brokers and controllers, which authenticate with the cluster's secret:"
    " always INTERNAL, since clients cannot use it."
    " If listeners does not contain it, the broker opens it on any free port, on the loopback interface unless the"
    " cluster spans several hosts.",
    lambda name: None if name.upper() == "INTERNAL" else "must be INTERNAL: replication is not served to clients",
)
CONTROLLER_LISTENER_NAMES: ConfigKey[tuple[str, ...]] = ConfigKey(
    "controller.listener.names",
    ConfigType.LIST,
    (),
    "Comma-separated list of those listeners in `listeners` that controllers open in place of brokers, for tools with"
    " --bootstrap-controller. Nodes do not use them: they reach controllers by inter.broker.listener.name.",
)
SOCKET_SEND_BUFFER_BYTES: ConfigKey[int] = ConfigKey(
    "socket.send.buffer.bytes",
    ConfigType.INT,
    -1,
    "Size of the SO_SNDBUF buffer of client connections, in bytes. -1 uses the operating system's default.",
    at_least(-1),
)
SOCKET_RECEIVE_BUFFER_BYTES: ConfigKey[int] = ConfigKey(
    "socket.receive.buffer.bytes",
    ConfigType.INT,
    -1,
    "Size of the SO_RCVBUF buffer of client connections, in bytes. -1 uses the operating system's default, which"
    " receives large batches at half the CPU time of Kafka's default, 102400.",
    at_least(-1),
)
SOCKET_REQUEST_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "socket.request.max.bytes",
    ConfigType.INT,
    104_857_600,
    "Largest request that the broker accepts, in bytes. The broker closes a connection that sends a larger one.",
    at_least(1 << 20),
)
SOCKET_LISTEN_BACKLOG_SIZE: ConfigKey[int] = ConfigKey(
    "socket.listen.backlog.size",
    ConfigType.INT,
    50,
    "Largest number of connections that wait to be accepted on one listener. The operating system may lower it.",
    at_least(1),
)
MAX_CONNECTIONS: ConfigKey[int] = ConfigKey(
    "max.connections",
    ConfigType.INT,
    INT_MAX,
    "Largest number of connections that the broker holds at once; it closes further ones. Connections between brokers"
    " and controllers are counted but never closed for it. With a listener prefix it limits that listener, which may"
    " be the one between brokers. The number of files that the process may open is a limit as well.",
    at_least(1),
    per_listener=True,
)
MAX_CONNECTIONS_PER_IP: ConfigKey[int] = ConfigKey(
    "max.connections.per.ip",
    ConfigType.INT,
    INT_MAX,
    "Largest number of connections from one IP address at once. The broker closes further ones.",
    at_least(1),
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: ConfigKey[tuple[str, ...]] = ConfigKey(
    "max.connections.per.ip.overrides",
    ConfigType.LIST,
    (),
    "Comma-separated list of address:count, which overrides max.connections.per.ip for single IP addresses. Names of"
    " hosts are not supported.",
    lambda entries: None if all(_override(entry) for entry in entries) else "must be a list of address:count",
)
MAX_CONNECTION_CREATION_RATE: ConfigKey[int] = ConfigKey(
    "max.connection.creation.rate",
    ConfigType.INT,
    INT_MAX,
    "Largest number of connections per second that the broker accepts. Further ones are served later, or closed if"
    " they would wait for more than ten seconds. With a listener prefix it limits that listener. The listener between"
    " brokers has no limit.",
    between(1, INT_MAX),
    per_listener=True,
)
CONNECTIONS_MAX_IDLE_MS: ConfigKey[int] = ConfigKey(
    "connections.max.idle.ms",
    ConfigType.LONG,
    600_000,
    "The broker closes a connection that has been idle for longer than this, in milliseconds. A negative value disables"
    " the limit.",
)


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Listeners as they are configured; the entries are not parsed yet."""

    listeners: tuple[str, ...]
    advertised: tuple[str, ...]
    security_protocols: tuple[str, ...]
    inter_broker_name: str
    """In upper case, as all names of listeners."""
    controller_names: frozenset[str]
    """Of the listeners that controllers open in place of brokers."""


def listener_settings(configs: Configs) -> ListenerSettings:
    return ListenerSettings(
        listeners=configs[LISTENERS],
        advertised=configs[ADVERTISED_LISTENERS],
        security_protocols=configs[LISTENER_SECURITY_PROTOCOL_MAP],
        inter_broker_name=configs[INTER_BROKER_LISTENER_NAME].upper(),
        controller_names=frozenset(name.strip().upper() for name in configs[CONTROLLER_LISTENER_NAMES]),
    )


def listener_names(configs: Configs) -> frozenset[str]:
    """The names of all listeners that brokers or controllers open, in upper case."""
    settings = listener_settings(configs)
    configured = {entry.partition("://")[0].upper() for entry in settings.listeners}
    return frozenset({*configured, settings.inter_broker_name})


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Options of listening sockets. A buffer size of -1 uses the operating system's default."""

    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


def socket_options(configs: Configs) -> SocketOptions:
    return SocketOptions(
        backlog=configs[SOCKET_LISTEN_BACKLOG_SIZE],
        send_buffer_bytes=configs[SOCKET_SEND_BUFFER_BYTES],
        receive_buffer_bytes=configs[SOCKET_RECEIVE_BUFFER_BYTES],
    )


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on what peers can open and send. For the inter-broker listener only `frame_bytes_max` and a limit of its
    own apply."""

    frame_bytes_max: int
    connections_max: int
    connections_per_host_max: int
    idle_ms: int
    """A connection that has been idle for longer is closed; negative: never."""
    unauthenticated_bytes_max: int = 524_288
    """Limit of requests before authentication by SASL."""
    failed_authentication_delay_ms: int = 100
    listener_connections_max: Mapping[str, int] = field(default_factory=dict)
    """Limits of single listeners, by their names in upper case."""
    connections_per_address: Mapping[str, int] = field(default_factory=dict)
    """Limits of single IP addresses, in place of `connections_per_host_max`."""
    creation_rate_max: int = INT_MAX
    """New connections per second."""
    listener_creation_rates: Mapping[str, int] = field(default_factory=dict)
    """The same of single listeners, by their names in upper case."""

    rate_samples: int = 11
    """Of the rates of new connections, as of client quotas."""
    rate_window_ms: int = 1000

    def limits_of(self, listener: str) -> int | None:
        """The largest number of connections on one listener; None if it has no limit of its own."""
        return self.listener_connections_max.get(listener.upper())


def connection_limits(configs: Configs) -> ConnectionLimits:
    return ConnectionLimits(
        frame_bytes_max=configs[SOCKET_REQUEST_MAX_BYTES],
        connections_max=configs[MAX_CONNECTIONS],
        connections_per_host_max=configs[MAX_CONNECTIONS_PER_IP],
        idle_ms=configs[CONNECTIONS_MAX_IDLE_MS],
        unauthenticated_bytes_max=configs[SASL_SERVER_MAX_RECEIVE_SIZE],
        failed_authentication_delay_ms=configs[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS],
        listener_connections_max={
            listener.upper(): limit for listener, limit in configs.overrides(MAX_CONNECTIONS).items()
        },
        connections_per_address=_per_address(configs[MAX_CONNECTIONS_PER_IP_OVERRIDES]),
        creation_rate_max=configs[MAX_CONNECTION_CREATION_RATE],
        listener_creation_rates={
            listener.upper(): rate for listener, rate in configs.overrides(MAX_CONNECTION_CREATION_RATE).items()
        },
        rate_samples=quota_settings(configs).window_count,
        rate_window_ms=quota_settings(configs).window_ms,
    )


def _per_address(entries: tuple[str, ...]) -> Mapping[str, int]:
    """The largest number of connections from single IP addresses."""
    return dict(pair for entry in entries if (pair := _override(entry)) is not None)


def _override(entry: str) -> tuple[str, int] | None:
    """The address and the count of `address:count`; None for any other text."""
    address, _, count = entry.rpartition(":")
    try:
        host = canonical_address(address.strip("[]"))
    except ValueError:
        return None
    return (host, int(count)) if count.isascii() and count.isdecimal() and len(count) < len(str(INT_MAX)) else None
