"""A link between two nodes without a network: bytes are delivered at once."""

from __future__ import annotations

from collections.abc import Callable

from raylog.core.clock import Now
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import Listener
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink
from tests.support.sim_disk import Killed


def settle(node: Node, now: Now) -> None:
    """Carry out a node's effects that need no network: turns of its connections, and jobs."""
    effects = node.take_effects()
    while effects.jobs or node.wants_turn:
        for job in effects.jobs:
            failure: Exception | None = None
            try:
                job.run()
            except Killed:
                raise
            except Exception as error:
                failure = error
            node.job_ended(job, failure, now)
        node.next_turn(now)
        effects = node.take_effects()


class DirectLinks:
    """The connections between a node's links and the nodes that serve them. `find` returns a node by name.

    None stands for a node that is down: requests get no response and no error.
    """

    def __init__(
        self,
        node: Node,
        listener: Listener,
        find: Callable[[str], Node | None],
    ) -> None:
        self.held: list[PeerLink] = []
        """Links that deliver nothing for a while, without either side noticing."""
        self._node = node
        self._listener = listener
        self._find = find
        self._connections: dict[PeerLink, tuple[Node, AcceptedConnection]] = {}

    def carry(self, now: Now, *, answers: bool = True) -> bool:
        """Open requested connections and deliver pending bytes, once in each direction. Returns whether any were.

        Without `answers` the bytes from the servers are lost.
        """
        moved = False
        for link in self._node.links:
            server = self._find(link.peer)
            if server is None:
                continue
            if link.wants_connection:
                connection = server.connection_opened(self._listener, "127.0.0.1", now)
                assert connection is not None
                self._connections[link] = server, connection
                self._node.link_connected(link, now)
                moved = True
            if link in self._connections and link not in self.held:
                moved |= self._carry(link, *self._connections[link], now, answers=answers)
            settle(server, now)
        settle(self._node, now)
        return moved

    def cut(self, now: Now, *, node_gone: bool = False, server_gone: bool = False, server: Node | None = None) -> None:
        """Break all connections, or those to `server`. Both sides notice it, except one that has failed itself."""
        broken = {link: made for link, made in self._connections.items() if server in (None, made[0])}
        for link, (served_by, connection) in broken.items():
            del self._connections[link]
            if not server_gone:
                served_by.connection_closed(connection, now)
            if not node_gone:
                self._node.link_lost(link, "cut", now)

    def _carry(self, link: PeerLink, server: Node, connection: AcceptedConnection, now: Now, *, answers: bool) -> bool:
        if link.closing or connection.closing:
            del self._connections[link]
            server.connection_closed(connection, now)
            self._node.link_lost(link, "hung up", now)
            return True
        sent = memoryview(b"".join(link.take_output()))
        data = sent
        while data and not connection.closing:
            room = connection.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            server.bytes_received(connection, count, now)
        settle(server, now)
        answered = memoryview(b"".join(server.take_output(connection)))
        data = answered if answers else answered[:0]
        while data and not link.closing:
            room = link.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._node.link_bytes_received(link, count, now)
        return bool(sent or answered)
