"""The ends of connections on a simulated host, as the protocol classes of `transport/server.py` for real sockets.

Bytes that the node does not read yet, or cannot read because its process hangs, stay in the socket.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from raylog.core.clock import Now
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink
from tests.sim.network import Connection, Side

if TYPE_CHECKING:
    from tests.sim.node_host import NodeHost

UNWRITTEN_BYTES_MAX = 8 << 10


class AcceptedSocket:
    """The node's end of an accepted connection."""

    def __init__(self, host: NodeHost[Any], accepted: AcceptedConnection, connection: Connection) -> None:
        self.connection = connection
        self._host = host
        self._incarnation = host.incarnation
        self._accepted = accepted
        self._held = bytearray()
        self._writable = True
        self._lost = False
        self._out = connection.to(Side.CLIENT)
        self._out.on_drained = self._drained

    def bytes_arrived(self, data: bytes) -> None:
        self._held += data
        self.hand_in()

    def connection_lost(self) -> None:
        self._lost = True
        self._host.forget(self._accepted)
        self._host.report(self._incarnation, self._closed, what="connection lost")

    def flush(self) -> None:
        """Send the node's output, and close the connection if the node requests it."""
        node = self._host.node
        assert node is not None
        self._out.send(b"".join(node.take_output(self._accepted)))
        if self._accepted.closing:
            if not self.connection.broken:
                self._host.world.marks["closed by the node"] += 1
                self.connection.break_(by=Side.SERVER, late=True)
            return
        if self._writable and self._out.unread_bytes > UNWRITTEN_BYTES_MAX:
            self._writable = False
            self._host.world.marks["muted"] += 1
            self._accepted.set_writable(writable=False)
        if self._held:
            self._host.world.after(0, self.hand_in)

    def hand_in(self) -> None:
        while self._held and self._accepted.wants_bytes and not self._lost and self._host.runs(self._incarnation):
            room = self._accepted.receive_buffer()
            count = min(len(room), len(self._held))
            room[:count] = self._held[:count]
            del self._held[:count]
            self._host.report(self._incarnation, partial(self._received, count))

    def _received(self, count: int, node: Node, now: Now) -> None:
        node.bytes_received(self._accepted, count, now)

    def _closed(self, node: Node, now: Now) -> None:
        node.connection_closed(self._accepted, now)

    def _drained(self) -> None:
        if not self._writable:
            self._writable = True
            self._host.report(self._incarnation, self._writable_again)

    def _writable_again(self, node: Node, now: Now) -> None:
        self._accepted.set_writable(writable=True)
        node.output_sent(self._accepted, self._out.unread_bytes, now)


class LinkSocket:
    """The node's end of a connection that one of its links has opened."""

    def __init__(self, host: NodeHost[Any], link: PeerLink) -> None:
        self.connection: Connection | None = None
        self._host = host
        self._incarnation = host.incarnation
        self._link = link
        self._held = bytearray()
        self._lost = False

    def connected(self, connection: Connection) -> None:
        self.connection = connection
        self._host.report(self._incarnation, lambda node, now: node.link_connected(self._link, now))

    def bytes_arrived(self, data: bytes) -> None:
        self._held += data
        self.hand_in()

    def connection_lost(self) -> None:
        self.lost("closed by the peer")

    def lost(self, reason: str) -> None:
        """The connection was lost or could not be established."""
        self._lost = True
        self._host.forget_link(self._link, self)
        self._host.report(self._incarnation, lambda node, now: node.link_lost(self._link, reason, now))

    def flush(self) -> None:
        if self.connection is None or self._lost:
            return
        if self._link.closing:
            self._host.world.marks["hung up by a link"] += not self.connection.broken
            self.connection.break_(by=Side.CLIENT, late=self._host.world.rng.random() < 0.5)
        else:
            self.connection.to(Side.SERVER).send(b"".join(self._link.take_output()))

    def hand_in(self) -> None:
        while self._held and not self._lost and not self._link.closing and self._host.runs(self._incarnation):
            room = self._link.receive_buffer()
            count = min(len(room), len(self._held))
            room[:count] = self._held[:count]
            del self._held[:count]
            self._host.report(self._incarnation, partial(self._received, count))

    def _received(self, count: int, node: Node, now: Now) -> None:
        node.link_bytes_received(self._link, count, now)
