"""Drives a client of raylog in a simulated cluster, as `client/network_loop.py` does with real sockets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.transport.peer_link import PeerLink
from tests.sim.broker_host import BrokerHost
from tests.sim.network import Connection, Side
from tests.sim.world import World

CONNECT_MS_MAX = 20


class ClientDriver:
    """One client of the cluster."""

    def __init__(self, world: World, hosts: list[BrokerHost], network: NetworkClient) -> None:
        self.world = world
        self.network = network
        self.on_event: Callable[[], None] = lambda: None
        """Called after each event of the client."""
        self._hosts = {host.name: host for host in hosts}
        self._sockets: dict[PeerLink, ClientSocket] = {}
        self._wake_ms: int | None = None
        self._closed = False

    def event(self, report: Callable[[Now], None]) -> None:
        if self._closed:
            return
        report(self.world.now())
        for link in self.network.take_touched():
            self._update(link)
        self._wake_at(self.network.next_tick_ms())
        self.on_event()

    def break_connection(self) -> None:
        """The network breaks the connections."""
        for socket in list(self._sockets.values()):
            if socket.connection is not None and not socket.connection.broken:
                self.world.marks["connection of a client broken"] += 1
                socket.connection.break_(by=None, late=self.world.rng.random() < 0.5)

    def close(self) -> None:
        """The process ends."""
        self._closed = True
        for socket in list(self._sockets.values()):
            socket.abort()

    def forget(self, link: PeerLink, socket: ClientSocket) -> None:
        if self._sockets.get(link) is socket:
            del self._sockets[link]

    def _update(self, link: PeerLink) -> None:
        if link.wants_connection and link not in self._sockets:
            self._sockets[link] = ClientSocket(self, link)
            delay_ms = self.world.rng.randint(0, CONNECT_MS_MAX)
            self.world.after(delay_ms, partial(self._connect, link, self._sockets[link]))
        elif link in self._sockets:
            self._sockets[link].flush()

    def _connect(self, link: PeerLink, socket: ClientSocket) -> None:
        host = self._hosts[self.network.address(link).host]
        connection = host.accept(socket, client_host="client")
        if connection is None:
            socket.connection_lost()
        else:
            socket.connected(connection)

    def _wake_at(self, due_ms: int) -> None:
        due_ms = max(due_ms, self.world.time_ms + 1)
        if self._wake_ms is None or due_ms < self._wake_ms:
            self._wake_ms = due_ms
            self.world.after(due_ms - self.world.time_ms, partial(self._wake, due_ms))

    def _wake(self, due_ms: int) -> None:
        if self._wake_ms == due_ms:
            self._wake_ms = None
            self.event(self.network.tick)


class ClientSocket:
    """The client's end of a connection."""

    def __init__(self, driver: ClientDriver, link: PeerLink) -> None:
        self.connection: Connection | None = None
        self._driver = driver
        self._link = link
        self._lost = False

    def connected(self, connection: Connection) -> None:
        self.connection = connection
        self._driver.event(partial(self._driver.network.link_connected, self._link, None))

    def bytes_arrived(self, data: bytes) -> None:
        while data and not self._lost and not self._link.closing:
            room = self._link.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._driver.event(partial(self._driver.network.link_bytes_received, self._link, count))

    def connection_lost(self) -> None:
        if not self._lost:
            self._lost = True
            self._driver.forget(self._link, self)
            self._driver.event(partial(self._driver.network.link_lost, self._link, "closed by the peer"))

    def abort(self) -> None:
        self._lost = True
        if self.connection is not None and not self.connection.broken:
            self.connection.break_(by=Side.CLIENT, late=self._driver.world.rng.random() < 0.5)

    def flush(self) -> None:
        if self.connection is None or self._lost:
            return
        if self._link.closing:
            self._driver.world.marks["closed by a client"] += not self.connection.broken
            self.connection.break_(by=Side.CLIENT, late=self._driver.world.rng.random() < 0.5)
        else:
            self.connection.to(Side.SERVER).send(b"".join(self._link.take_output()))
