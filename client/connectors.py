"""(shell) Transports to a broker: TCP, and a Unix socket on the broker's own node. All carry the same frames.

The transport by actor handle depends on Ray and is in `raylog.actors.handle_connector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from raylog.client.client_config import ClientConfig
from raylog.client.cluster_view import Node, parse_servers
from raylog.transport import unix
from raylog.transport.blocking import SocketStream, Stream


class Connector(Protocol):
    """Opens connections to the brokers of a cluster. Methods raise KafkaError(NETWORK_EXCEPTION)."""

    def bootstrap(self, timeout_seconds: float) -> Iterator[Callable[[], Stream]]:
        """Functions that connect to any broker, to be tried in this order."""

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        """Connect to this broker."""


class TcpConnector:
    """TCP, with TLS and a login where the client's properties say so."""

    def __init__(self, config: ClientConfig) -> None:
        """Raises ConfigError."""
        self._servers = parse_servers(config.bootstrap_servers)
        self.dialer = config.dialer()

    def bootstrap(self, timeout_seconds: float) -> Iterator[Callable[[], Stream]]:
        for host, port in self._servers:
            yield partial(self.dialer.connect, host, port, timeout_seconds=timeout_seconds)

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        return self.dialer.connect(node.host, node.port, timeout_seconds=timeout_seconds)


class NearestConnector(TcpConnector):
    """A Unix socket to brokers on this machine, which are found by the ids in Metadata, and TCP to all others.

    Clients with TLS or a login use TCP only: a Unix socket belongs to the broker's first listener, which need not be
    theirs.
    """

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        if not self.dialer.is_plain:
            return super().open(node, timeout_seconds)
        name = unix.kafka_socket_name(node.broker_id)
        sock = unix.connect_in_runtime_dir(node.cluster_id, name, unix.STREAM, timeout_seconds=timeout_seconds)
        return super().open(node, timeout_seconds) if sock is None else SocketStream(sock, name)
