"""A link of one node to another without a network: bytes go across at once."""

from __future__ import annotations

from collections.abc import Callable

from raylog.core.clock import Now
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import Listener
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink
from tests.support.sim_disk import Killed


def settle(node: Node, now: Now) -> None:
    """Carry out what a node wants done that needs no network: turns of its connections, and jobs."""
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
    """The connections between a node's links and the nodes that serve them, whom `find` knows by name.

    None stands for one that is away: nobody answers, and nobody says so.
    """

    def __init__(
        self,
        node: Node,
        listener: Listener,
        find: Callable[[str], Node | None],
    ) -> None:
        self.held: list[PeerLink] = []
        """Links over which nothing goes for a while, and neither side notices."""
        self._node = node
        self._listener = listener
        self._find = find
        self._connections: dict[PeerLink, tuple[Node, AcceptedConnection]] = {}

    def carry(self, now: Now, *, answers: bool = True) -> bool:
        """Make wanted connections and move what lies ready, once in each direction; whether anything moved.

        Without `answers` what the servers have to say is lost.
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
        """Connections break, all or those to `server`, and both sides learn of it, but for one that is gone itself."""
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
