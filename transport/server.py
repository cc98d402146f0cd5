"""(shell) A node's sockets: asyncio's callbacks become events of `Node`, and its output is written to the sockets.

Everything here runs on one event loop, the only writer of the node's state.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns, perf_counter_ns, time_ns
from typing import Final, Protocol, cast

from raylog.config.network import SocketOptions
from raylog.core.clock import Now
from raylog.core.errors import ConfigError, InvariantViolation, KafkaError
from raylog.protocol.wire import Buffer
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.node import Job, JobKind, Node, carry_out
from raylog.transport.peer_link import PeerLink

log = logging.getLogger("raylog.transport")
UNWRITTEN_BYTES_MAX = 1 << 20
"""More unsent bytes than this mute a connection until the peer reads."""
CLOSE_GRACE_SECONDS = 5.0
"""How long a closing connection may take to send its last responses."""
DIAL_SECONDS_MAX = 5.0
TICK_SECONDS_MAX = 1.0
TURNS_NS_MAX = 2_000_000
"""How long connections get further turns before the loop polls for new events."""
THREADS: Final = {JobKind.WRITE: 1, JobKind.READ: 2, JobKind.COMPUTE: 2, JobKind.AUTHENTICATE: 4, JobKind.DOWNLOAD: 2}
"""Threads for each kind of job: a client whose batches take long to check does not delay reads of others."""
HANDSHAKE_THREADS = 2
HANDSHAKES_MAX = 2000
"""TLS handshakes in progress. Beyond this the oldest is given up: silent peers do not keep others out."""
ENCRYPTED_BYTES: Final = 256 << 10
SLOW_TURN_NS = 50_000_000
IPV4_MAPPED: Final = "::ffff:"


def now() -> Now:
    return Now(monotonic_ns() // 1_000_000, time_ns() // 1_000_000)


async def no_peers(peer: str) -> Endpoint:
    """For a node without links."""
    raise OSError(f"the address of {peer} is unknown")


class NodeServer:
    """Opens the listeners of one node, makes its links and drives it; `on_failure` is called when an invariant breaks.

    `resolve` returns the internal listener of a peer, each time a link to it is made; it may raise OSError.
    """

    def __init__(
        self,
        node: Node,
        listeners: Sequence[Listener],
        *,
        options: SocketOptions,
        resolve: Callable[[str], Awaitable[Endpoint]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.node = node
        node.work_clock_ns = perf_counter_ns
        self.listeners = listeners
        self.options = options
        self._resolve = resolve
        self._on_failure = on_failure
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._opened: asyncio.Future[None]
        self._opening: asyncio.Task[None] | None = None
        self._closable: asyncio.Future[None] | None = None
        self._endpoints: dict[AcceptedConnection, ServedEndpoint] = {}
        self._dials: dict[PeerLink, asyncio.Task[None]] = {}
        self._link_endpoints: dict[PeerLink, _LinkEndpoint] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._serving = False
        self._failed = False
        self._turn_called = False
        self._threads = {
            kind: ThreadPoolExecutor(max_workers=count, thread_name_prefix=f"raylog-{kind.value}")
            for kind, count in THREADS.items()
        }
        self.handshake_threads = ThreadPoolExecutor(HANDSHAKE_THREADS, thread_name_prefix="raylog-handshake")
        self._handshakes: dict[Handshake, None] = {}
        """Those in progress, the oldest first."""
        self.encrypted = memoryview(bytearray(ENCRYPTED_BYTES))
        """What a socket has received last, for TLS to decrypt at once."""
        self.turns = TurnTimes()
        self.bound: dict[str, Endpoint] = {}
        """The bound endpoint of each listener, by name."""

    async def start(self) -> None:
        """Bind every listener, start the node, and return once its listeners are open.

        Raises ConfigError for an address that cannot be bound, and the node's errors; everything is then released.
        """
        self._opened = asyncio.get_running_loop().create_future()
        try:
            self._sockets.extend(_bind(listener, self.options) for listener in self.listeners)
            self.bound = {
                listener.name: Endpoint(listener.bind.host, sock.getsockname()[1])
                for listener, sock in zip(self.listeners, self._sockets, strict=True)
            }
            host_name = socket.gethostname()
            self.node.start(
                {
                    listener.name: listener.advertised_to_clients(self.bound[listener.name], host_name=host_name)
                    for listener in self.listeners
                },
                now(),
            )
            self._serving = True
            self.after_event()
            await self._opened
        except BaseException:
            await self._close_connections()
            raise

    async def stop(self) -> None:
        """Let the node hand over work to others, stop listening, close the node cleanly, close all connections."""
        if not self._failed:
            await self._controlled_shutdown()
        await self._close_connections()
        if not self._failed:
            self.node.close(now())

    async def _controlled_shutdown(self) -> None:
        if self._closable is None:
            self._closable = asyncio.get_running_loop().create_future()
        try:
            self.node.begin_shutdown(now())
        except InvariantViolation as violation:
            self.fail(violation)
        else:
            self.after_event()
        await self._closable

    def _allow_close(self) -> None:
        if self._closable is not None and not self._closable.done():
            self._closable.set_result(None)

    async def _close_connections(self) -> None:
        self._serving = False
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._dials.values(), *([self._opening] if self._opening is not None else [])):
            task.cancel()
        self._close_servers()
        for threads in (*self._threads.values(), self.handshake_threads):
            await asyncio.get_running_loop().run_in_executor(None, partial(threads.shutdown, cancel_futures=True))

    def _close_servers(self) -> None:
        self.close_more()
        for server in self._servers:
            server.close()
        for endpoint in list(self._endpoints.values()):
            endpoint.abort()
        for link_endpoint in list(self._link_endpoints.values()):
            link_endpoint.abort()
        self._close_sockets()

    def _close_sockets(self) -> None:
        """Closes the sockets that do not listen yet; the others belong to their servers."""
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            sock.close()

    async def _open(self) -> None:
        """Start listening. Until then a bound socket refuses every connection."""
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        try:
            for listener, sock in zip(self.listeners, sockets, strict=True):
                factory = self.endpoint_factory(listener)
                self._servers.append(await loop.create_server(factory, sock=sock, backlog=self.options.backlog))
            await self.open_more()
        except OSError as error:
            self._opened.set_exception(ConfigError(f"listeners: cannot listen: {error}"))
        except Exception as error:
            self._opened.set_exception(error)
        else:
            self._opened.set_result(None)

    def endpoint_factory(self, listener: Listener) -> Callable[[], AcceptedEndpoint]:
        """Makes the endpoint of each connection that the listener accepts."""
        return partial(AcceptedEndpoint, self, listener)

    async def open_more(self) -> None:
        """For a node with endpoints other than its listeners: opened together with them."""

    def close_more(self) -> None:
        """Closed together with the listeners."""

    def event(self, report: Callable[[], None], *, endpoint: ServedEndpoint | _Endpoint | None = None) -> None:
        """Report one event to the node and carry out its effects.

        An unexpected error closes the connection that the event came from; without a connection it ends the node.
        """
        began_ns = perf_counter_ns()
        try:
            report()
        except InvariantViolation as violation:
            self.fail(violation)
            return
        except Exception as error:
            if endpoint is None:
                self.fail(InvariantViolation(f"an event failed: {error!r}"), cause=error)
                return
            log.exception("event failed", extra={"peer": endpoint.peer})
            endpoint.abort()
        self.after_event()
        took_ns = perf_counter_ns() - began_ns
        if took_ns > self.turns.notable_ns:
            self.turns.record(took_ns, report)
            if took_ns > SLOW_TURN_NS:
                self.node.journal.note(now(), "slow turn", of=_name_of(report), took_ms=took_ns // 1_000_000)

    def opened(self, connection: AcceptedConnection, endpoint: ServedEndpoint) -> None:
        self._endpoints[connection] = endpoint

    def lost(self, connection: AcceptedConnection, endpoint: ServedEndpoint) -> None:
        if self._endpoints.pop(connection, None) is not None:
            self.event(partial(self.node.connection_closed, connection, now()), endpoint=endpoint)

    def handshake_begins(self, endpoint: Handshake) -> None:
        self._handshakes[endpoint] = None
        if len(self._handshakes) > HANDSHAKES_MAX:
            next(iter(self._handshakes)).abandon_handshake()

    def handshake_ended(self, endpoint: Handshake) -> None:
        self._handshakes.pop(endpoint, None)

    def link_lost(self, link: PeerLink, endpoint: _LinkEndpoint, reason: str) -> None:
        self._link_endpoints.pop(link, None)
        if self._serving:
            self.event(partial(self.node.link_lost, link, reason, now()), endpoint=endpoint)

    def after_event(self) -> None:
        """Carry out the effects of the node."""
        carry_out(self.node, self)
        if self._closable is not None and self.node.can_close:
            self._allow_close()
        if self._serving and self._opening is None and self.node.accepting:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    # --- the effects of the node, as called by `carry_out`

    def flush(self, connection: AcceptedConnection) -> None:
        endpoint = self._endpoints.get(connection)
        if endpoint is not None:
            endpoint.flush()

    def update_link(self, link: PeerLink) -> None:
        if not self._serving:
            return
        if link.wants_connection and link not in self._dials:
            self._dials[link] = asyncio.get_running_loop().create_task(self._dial(link))
        endpoint = self._link_endpoints.get(link)
        if endpoint is not None:
            endpoint.flush()

    def run_job(self, job: Job) -> None:
        """Run it in a thread, and report on the loop how it ended."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            failure: BaseException | None = None
            try:
                job.run()
            except BaseException as error:  # the end of every job must be reported, whatever its error
                failure = error
            loop.call_soon_threadsafe(self._job_ended, job, failure)

        self._threads[job.kind].submit(run)

    def _job_ended(self, job: Job, failure: BaseException | None) -> None:
        if self._serving:
            self.event(partial(self.node.job_ended, job, failure, now()))

    async def _dial(self, link: PeerLink) -> None:
        endpoint = _LinkEndpoint(self, link)
        try:
            async with asyncio.timeout(DIAL_SECONDS_MAX):
                where = self.node.peer_endpoint(link.peer) or await self._resolve(link.peer)
                await asyncio.get_running_loop().create_connection(lambda: endpoint, where.host, where.port)
        except Exception as error:  # of any kind: the link would wait forever for a result
            if not isinstance(error, OSError):
                log.exception("connection attempt failed", extra={"peer": link.peer})
            del self._dials[link]
            if not endpoint.connected:
                self.event(partial(self.node.link_lost, link, str(error), now()), endpoint=endpoint)
        else:
            del self._dials[link]

    def link_connected(self, link: PeerLink, endpoint: _LinkEndpoint) -> None:
        self._link_endpoints[link] = endpoint
        self.event(partial(self.node.link_connected, link, now()), endpoint=endpoint)

    def call_next_turn(self) -> None:
        if not self._turn_called:
            self._turn_called = True
            asyncio.get_running_loop().call_soon(self._next_turns)

    def _next_turns(self) -> None:
        """Run turns for a few milliseconds, then process other events."""
        self._turn_called = False
        until_ns = perf_counter_ns() + TURNS_NS_MAX
        while self._serving and self.node.wants_turn:
            self.event(self._next_turn)
            if perf_counter_ns() >= until_ns:
                return

    def _next_turn(self) -> None:
        self.node.next_turn(now())

    def wake_at(self, due_ms: int) -> None:
        if not self._serving:
            return
        if self._timer is not None and not self._timer.cancelled() and self._timer_due_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = min(max(0.0, (due_ms - now().monotonic_ms) / 1000), TICK_SECONDS_MAX)
        self._timer_due_ms = due_ms
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.event(self._tick)

    def _tick(self) -> None:
        self.node.tick(now())

    def fail(self, violation: InvariantViolation, *, cause: BaseException | None = None) -> None:
        """An invariant is broken: the node stops serving. The supervisor restarts it from its logs."""
        self._failed = True
        self._serving = False
        log.critical("invariant violated", exc_info=cause or violation, extra={"story": self.node.journal.story()})
        self._close_servers()
        self._allow_close()
        if self._opened.done():
            self._on_failure(violation)
        else:
            refusal = violation.__cause__  # a KafkaError has the message for the operator
            self._opened.set_exception(refusal if isinstance(refusal, KafkaError) else violation)


@dataclass(slots=True)
class TurnTimes:
    """How long single turns of the loop took: the delay that a heartbeat may see."""

    longest_ns: int = 0
    longest: str = ""
    """The name of the event that took so long."""
    slow: int = 0
    """How many took more than 50 ms."""

    @property
    def notable_ns(self) -> int:
        """Turns up to this long need not be recorded."""
        return min(self.longest_ns, SLOW_TURN_NS)

    def record(self, took_ns: int, event: Callable[[], None]) -> None:
        if took_ns > self.longest_ns:
            self.longest_ns, self.longest = took_ns, _name_of(event)
        if took_ns > SLOW_TURN_NS:
            self.slow += 1


def _name_of(event: Callable[[], None]) -> str:
    function = event.func if isinstance(event, partial) else event
    return getattr(function, "__name__", repr(function))


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


class _Endpoint(asyncio.BufferedProtocol):
    """One socket of a node."""

    peer = "unknown"
    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def eof_received(self) -> bool:
        return False

    def abort(self) -> None:
        self._transport.abort()


class _LinkEndpoint(_Endpoint):
    """The socket of a link."""

    def __init__(self, server: NodeServer, link: PeerLink) -> None:
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


class AcceptedEndpoint(_Endpoint):
    """An accepted socket: its bytes go to an AcceptedConnection, whose output goes to the socket."""

    _connection: AcceptedConnection

    def __init__(self, server: NodeServer, listener: Listener) -> None:
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


def _bind(listener: Listener, options: SocketOptions) -> socket.socket:
    host, port = listener.bind.host, listener.bind.port
    family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # a machine without IPv6: the empty host then means every IPv4 interface
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        for size, option in (
            (options.send_buffer_bytes, socket.SO_SNDBUF),
            (options.receive_buffer_bytes, socket.SO_RCVBUF),
        ):
            if size != -1:
                sock.setsockopt(socket.SOL_SOCKET, option, size)  # accepted connections inherit it
        sock.bind((host, port))
    except (OSError, socket.gaierror) as error:
        sock.close()
        raise ConfigError(f"listeners: cannot listen on {listener.name}://{listener.bind}: {error}") from error
    return sock
