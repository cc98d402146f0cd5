"""(shell) The ways to a broker: TCP from anywhere, a Unix socket on its own node. (An actor handle is a third one: it
knows Ray, so it is in `raylog.actors.handle_door`.) The same frames go through each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from raylog.client.cluster_view import Node, parse_servers
from raylog.transport import unix
from raylog.transport.blocking import SocketStream, Stream, connect_tcp


class Door(Protocol):
    """How one client reaches the brokers of one cluster. Methods raise KafkaError(NETWORK_EXCEPTION)."""

    def bootstrap(self, timeout_seconds: float) -> Iterator[Callable[[], Stream]]:
        """Ways to some broker, to be tried in this order."""

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        """To this very broker."""


class TcpDoor:
    """`bootstrap_servers` as Kafka has it. Raises ConfigError."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = parse_servers(bootstrap_servers)

    def bootstrap(self, timeout_seconds: float) -> Iterator[Callable[[], Stream]]:
        for host, port in self._servers:
            yield partial(connect_tcp, host, port, timeout_seconds=timeout_seconds)

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        return connect_tcp(node.host, node.port, timeout_seconds=timeout_seconds)


class NearestDoor(TcpDoor):
    """TCP, but a Unix socket to brokers of this machine: which they are is found by the ids that Metadata tells."""

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        name = unix.stream_name(node.broker_id)
        sock = unix.connect_in_runtime_dir(node.cluster_id, name, unix.STREAM, timeout_seconds=timeout_seconds)
        return super().open(node, timeout_seconds) if sock is None else SocketStream(sock, name)
