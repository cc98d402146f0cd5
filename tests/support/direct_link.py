"""A link of one node to another without a network: bytes go across at once."""

from __future__ import annotations

from raylog.core.clock import Now
from raylog.transport.endpoints import Listener
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink
from raylog.transport.request import AcceptedConnection


class DirectLinks:
    """The connections between a node's links and the node that serves them all; `server` is None while it is away."""

    def __init__(self, node: Node, server: Node | None, listener: Listener) -> None:
        self.server = server
        self.held: list[PeerLink] = []
        """Links over which nothing goes for a while, and neither side notices."""
        self._node = node
        self._listener = listener
        self._connections: dict[PeerLink, AcceptedConnection] = {}

    def carry(self, now: Now, *, answers: bool = True) -> bool:
        """Make wanted connections and move what lies ready, once in each direction; whether anything moved.

        Without `answers` what the server has to say is lost.
        """
        if self.server is None:
            return False
        moved = False
        for link in self._node.links:
            if link.wants_connection:
                connection = self.server.connection_opened(self._listener, "127.0.0.1", now)
                assert connection is not None
                self._connections[link] = connection
                self._node.link_connected(link, now)
                moved = True
            if link in self._connections and link not in self.held:
                moved |= self._carry(link, self._connections[link], now, answers=answers)
        self.server.take_touched()
        self._node.take_touched_links()
        return moved

    def cut(self, now: Now, *, node_gone: bool = False, server_gone: bool = False) -> None:
        """Every connection breaks, and both sides learn of it, but for one that is gone itself."""
        connections, self._connections = self._connections, {}
        for link, connection in connections.items():
            if not server_gone and self.server is not None:
                self.server.connection_closed(connection, now)
            if not node_gone:
                self._node.link_lost(link, "cut", now)

    def _carry(self, link: PeerLink, connection: AcceptedConnection, now: Now, *, answers: bool) -> bool:
        assert self.server is not None
        if link.closing or connection.closing:
            del self._connections[link]
            self.server.connection_closed(connection, now)
            self._node.link_lost(link, "hung up", now)
            return True
        sent = memoryview(b"".join(link.take_output()))
        data = sent
        while data and not connection.closing:
            room = connection.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.server.bytes_received(connection, count, now)
        answered = memoryview(b"".join(connection.take_output()))
        if answered:
            self.server.output_taken(connection, now)
        data = answered if answers else answered[:0]
        while data and not link.closing:
            room = link.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._node.link_bytes_received(link, count, now)
        return bool(sent or answered)
