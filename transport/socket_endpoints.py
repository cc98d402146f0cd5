"""(shell) The sockets of a node: what arrives becomes events of `Node`, and its output is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from raylog.core.clock import Now
from raylog.protocol.wire import Buffer
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import Listener
from raylog.transport.peer_link import PeerLink
from raylog.transport.system_time import now

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from raylog.transport.node import Node

log = logging.getLogger("raylog.transport")
UNWRITTEN_BYTES_MAX = 1 << 20
"""More unsent bytes than this mute a connection until the peer reads."""
CLOSE_GRACE_SECONDS = 5.0
"""How long a closing connection may take to send its last responses."""
IPV4_MAPPED: Final = "::ffff:"


class LinkUser(Protocol):
    """Whose links they are: a node, or a client."""

    def link_bytes_received(self, link: PeerLink, count: int, now: Now) -> None: ...


class LinkOwner(Protocol):
    """What the endpoint of a link uses of its driver."""

    @property
    def node(self) -> LinkUser: ...

    def event(self, report: Callable[[], None], *, endpoint: ServedEndpoint | SocketEndpoint | None = None) -> None: ...

    def link_connected(self, link: PeerLink, endpoint: LinkEndpoint) -> None: ...

    def link_lost(self, link: PeerLink, endpoint: LinkEndpoint, reason: str) -> None: ...


class EndpointOwner(Protocol):
    """What the endpoint of an accepted connection uses of its server."""

    node: Node
    encrypted: memoryview
    handshake_threads: ThreadPoolExecutor

    def event(self, report: Callable[[], None], *, endpoint: ServedEndpoint | SocketEndpoint | None = None) -> None: ...

    def opened(self, connection: AcceptedConnection, endpoint: ServedEndpoint) -> None: ...

    def lost(self, connection: AcceptedConnection, endpoint: ServedEndpoint) -> None: ...

    def handshake_begins(self, endpoint: Handshake) -> None: ...

    def handshake_ended(self, endpoint: Handshake) -> None: ...

    def after_event(self) -> None: ...


class ServedEndpoint(Protocol):
    """The endpoint behind an accepted connection."""

    peer: str

    def flush(self) -> None:
        """Pass on the connection's output, and check whether it is closing."""

    def abort(self) -> None: ...


class Handshake(Protocol):
    """A connection whose TLS handshake is in progress."""

    def abandon_handshake(self) -> None:
        """Close it in favour of newer ones."""


class SocketEndpoint(asyncio.BufferedProtocol):
    """One socket of a node."""

    peer = "unknown"
    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def eof_received(self) -> bool:
        return False

    def abort(self) -> None:
        self._transport.abort()


class LinkEndpoint(SocketEndpoint):
    """The socket of a link."""

    def __init__(self, server: LinkOwner, link: PeerLink) -> None:
        self._server = server
        self._link = link
        self.peer = link.peer
        self.connected = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.connected = True
        self._server.link_connected(self._link, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.link_lost(self._link, self, str(exc or "closed by the peer"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._link.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._server.event(partial(self._server.node.link_bytes_received, self._link, nbytes, now()), endpoint=self)

    def flush(self) -> None:
        if self._link.closing:
            self._transport.abort()
        elif output := self._link.take_output():
            self._transport.writelines(output)


class AcceptedEndpoint(SocketEndpoint):
    """An accepted socket: its bytes go to an AcceptedConnection, whose output goes to the socket."""

    _connection: AcceptedConnection

    def __init__(self, server: EndpointOwner, listener: Listener) -> None:
        self._server = server
        self._node = server.node
        self._listener = listener
        self._reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = None
        if self.allowed(transport):
            connection = self._node.connection_opened(self._listener, self.peer, now())
        if connection is None:
            log.warning("connection refused", extra={"peer": self.peer})
            self._transport.abort()
            return
        self._connection = connection
        self._transport.set_write_buffer_limits(high=UNWRITTEN_BYTES_MAX)
        self._server.opened(connection, self)
        if connection.throttled:
            self._server.after_event()  # its time must be watched

    def allowed(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the peer may connect; sets who it is."""
        peer = transport.get_extra_info("peername")
        self.peer = _address(peer[0]) if peer else "unknown"
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if hasattr(self, "_connection"):
            self._server.lost(self._connection, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._server.event(partial(self._node.bytes_received, self._connection, nbytes, now()), endpoint=self)

    def pause_writing(self) -> None:
        self._connection.set_writable(writable=False)

    def resume_writing(self) -> None:
        self._connection.set_writable(writable=True)
        unsent_bytes = self._transport.get_write_buffer_size()
        self._server.event(partial(self._node.output_sent, self._connection, unsent_bytes, now()), endpoint=self)

    def flush(self) -> None:
        """Write the output, pause or resume reading as the connection requires, close it if it is closing."""
        output = self._node.take_output(self._connection)
        if output:
            self.write(output)
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes != self._connection.unsent_bytes:
                self._node.unsent(self._connection, unsent_bytes)
        if self._connection.closing:
            if self._connection.close_reason != "closed by the peer":
                log.info("connection closed", extra={"peer": self.peer, "reason": self._connection.close_reason})
            self.close()
            asyncio.get_running_loop().call_later(CLOSE_GRACE_SECONDS, self._transport.abort)
        elif self._reading != self._connection.wants_bytes:
            self._reading = self._connection.wants_bytes
            if self._reading:
                self._transport.resume_reading()
                self.reading_resumed()
            else:
                self._transport.pause_reading()

    def reading_resumed(self) -> None:
        """The connection takes input again."""

    def write(self, output: Sequence[Buffer]) -> None:
        self._transport.writelines(output)

    def close(self) -> None:
        """Close once the output is sent."""
        self._transport.close()


def _address(text: str) -> str:
    """The address of a peer. A socket for all interfaces shows that of an IPv4 client as ::ffff:10.0.0.1."""
    return text.removeprefix(IPV4_MAPPED) if "." in text else text
