"""(shell) The broker's sockets: asyncio's callbacks become events of `Broker`, and what it touched is written out.

Everything here runs on one event loop, the only writer of the broker's state.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

from raylog.broker import config
from raylog.broker.broker import Broker
from raylog.broker.listeners import Endpoint, Listener
from raylog.broker.local_door import LocalDoor, open_door
from raylog.broker.partitions import DiskWork
from raylog.broker.request import ClientConnection
from raylog.core.clock import Now
from raylog.core.errors import ConfigError, InvariantViolation

log = logging.getLogger("raylog.broker")
UNWRITTEN_BYTES_MAX = 1 << 20
"""More than this unsent mutes a connection until the peer reads."""
CLOSE_GRACE_SECONDS = 5.0
"""How long a connection that is being closed may take to read its last answers."""
TICK_SECONDS_MAX = 1.0


def now() -> Now:
    return Now(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


class BrokerServer:
    """Opens the listeners of one broker and drives it; `on_failure` is called when an invariant breaks."""

    def __init__(self, broker: Broker, listeners: Sequence[Listener], *, on_failure: Callable[[BaseException], None]):
        self._broker = broker
        self._listeners = listeners
        self._on_failure = on_failure
        self._servers: list[asyncio.Server] = []
        self._door: LocalDoor | None = None
        self._endpoints: dict[ClientConnection, _ClientEndpoint] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._serving = False
        self._failed = False
        self._disk_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="raylog-disk")
        self.bound: dict[str, Endpoint] = {}
        """Where each listener really listens, by name."""

    async def start(self) -> None:
        """Bind every listener, register the broker, serve. Raises ConfigError for an address that cannot be had."""
        loop = asyncio.get_running_loop()
        sockets: list[socket.socket] = []
        try:
            sockets.extend(_bind(listener, self._broker) for listener in self._listeners)
            self._register(sockets)
        except BaseException:
            for sock in sockets:
                sock.close()
            raise
        backlog = self._broker.configs[config.SOCKET_LISTEN_BACKLOG_SIZE]
        for listener, sock in zip(self._listeners, sockets, strict=True):
            factory = _factory(self, listener)
            self._servers.append(await loop.create_server(factory, sock=sock, backlog=backlog))
        identity = self._broker.identity
        self._door = open_door(
            self._broker.local_readers,
            cluster_id=identity.cluster_id,
            broker_id=identity.broker_id,
            on_failure=self._fail,
        )
        self._serving = True
        self._set_timer()

    def _register(self, sockets: Sequence[socket.socket]) -> None:
        """Tell the broker, and through it the cluster, where it can be reached."""
        self.bound = {
            listener.name: Endpoint(listener.bind.host, sock.getsockname()[1])
            for listener, sock in zip(self._listeners, sockets, strict=True)
        }
        host_name = socket.gethostname()
        self._broker.serve(
            {
                listener.name: listener.told_to_clients(self.bound[listener.name], host_name=host_name)
                for listener in self._listeners
            },
            client_listener=self._listeners[0].name,
            now=now(),
        )

    async def stop(self) -> None:
        """Stop listening, close the broker cleanly, hang up."""
        await self._hang_up()
        if not self._failed:
            self._broker.close(now())

    async def _hang_up(self) -> None:
        self._serving = False
        if self._timer is not None:
            self._timer.cancel()
        for server in self._servers:
            server.close()
        self._close_door()
        for endpoint in list(self._endpoints.values()):
            endpoint.abort()
        await asyncio.get_running_loop().run_in_executor(None, partial(self._disk_thread.shutdown, cancel_futures=True))

    def event(self, endpoint: _ClientEndpoint, report: Callable[[], None]) -> None:
        """Report one event to the broker and carry out what follows."""
        try:
            report()
        except InvariantViolation as violation:
            self._fail(violation)
            return
        except Exception:
            log.exception("request failed", extra={"peer": endpoint.peer_host})
            endpoint.abort()
        self._after_event()

    @property
    def broker(self) -> Broker:
        return self._broker

    def opened(self, connection: ClientConnection, endpoint: _ClientEndpoint) -> None:
        self._endpoints[connection] = endpoint

    def lost(self, connection: ClientConnection) -> None:
        self._endpoints.pop(connection, None)
        self._broker.connection_closed(connection)

    def _after_event(self) -> None:
        for connection in self._broker.take_touched():
            endpoint = self._endpoints.get(connection)
            if endpoint is not None:
                held_back = connection.held_back
                endpoint.flush()
                if (
                    held_back and not connection.muted
                ):  # in a later round of the loop, so that the others get their turn
                    asyncio.get_running_loop().call_soon(self.event, endpoint, endpoint.output_taken)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._serving:
            return
        due_ms = self._broker.next_tick_ms()
        if self._timer is not None and not self._timer.cancelled() and self._timer_due_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = min(max(0.0, (due_ms - now().monotonic_ms) / 1000), TICK_SECONDS_MAX)
        self._timer_due_ms = due_ms
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._broker.tick(now())
            for work in self._broker.take_disk_work():
                self._in_background(work)
        except InvariantViolation as violation:
            self._fail(violation)
            return
        except Exception:
            log.exception("tick failed")
        self._after_event()

    def _in_background(self, work: DiskWork) -> None:
        """Run it in the disk's thread, and tell the broker on the loop how it ended."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            failure: OSError | None = None
            try:
                work.run()
            except OSError as error:
                failure = error
            loop.call_soon_threadsafe(work.done, failure)

        self._disk_thread.submit(run)

    def _fail(self, violation: InvariantViolation) -> None:
        """State that cannot be: nothing more is served from it. Whoever supervises reloads from the log."""
        self._failed = True
        self._serving = False
        log.critical("invariant violated", exc_info=violation)
        for endpoint in list(self._endpoints.values()):
            endpoint.abort()
        for server in self._servers:
            server.close()
        self._close_door()
        self._on_failure(violation)

    def _close_door(self) -> None:
        door, self._door = self._door, None
        if door is not None:
            door.close()


class _ClientEndpoint(asyncio.BufferedProtocol):
    """One socket: its bytes go to a ClientConnection, and the connection's output to the socket."""

    def __init__(self, server: BrokerServer, listener: Listener) -> None:
        self._server = server
        self._broker = server.broker
        self._listener = listener
        self._transport: asyncio.Transport
        self._connection: ClientConnection
        self._reading = True
        self.peer_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = peer[0] if peer else "unknown"
        connection = self._broker.connection_opened(self._listener, self.peer_host, now())
        if connection is None:
            log.warning("connection refused: too many", extra={"peer": self.peer_host})
            self._transport.abort()
            return
        self._connection = connection
        self._transport.set_write_buffer_limits(high=UNWRITTEN_BYTES_MAX)
        self._server.opened(connection, self)

    def connection_lost(self, exc: Exception | None) -> None:
        if hasattr(self, "_connection"):
            self._server.lost(self._connection)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._server.event(self, lambda: self._broker.bytes_received(self._connection, nbytes, now()))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.set_writable(writable=False)

    def resume_writing(self) -> None:
        self._server.event(self, lambda: self._broker.writable_changed(self._connection, now(), writable=True))

    def output_taken(self) -> None:
        self._broker.output_taken(self._connection, now())

    def flush(self) -> None:
        """Write the output, match reading to what the connection wants, hang up where it is closing."""
        output = self._connection.take_output()
        if output:
            self._transport.writelines(output)
        if self._connection.closing:
            if self._connection.close_reason != "closed by the peer":
                log.info("connection closed", extra={"peer": self.peer_host, "reason": self._connection.close_reason})
            self._transport.close()
            asyncio.get_running_loop().call_later(CLOSE_GRACE_SECONDS, self._transport.abort)
        elif self._reading != self._connection.wants_bytes:
            self._reading = self._connection.wants_bytes
            if self._reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def abort(self) -> None:
        self._transport.abort()


def _factory(server: BrokerServer, listener: Listener) -> Callable[[], _ClientEndpoint]:
    return lambda: _ClientEndpoint(server, listener)


def _bind(listener: Listener, broker: Broker) -> socket.socket:
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
        for key, option in (
            (config.SOCKET_SEND_BUFFER_BYTES, socket.SO_SNDBUF),
            (config.SOCKET_RECEIVE_BUFFER_BYTES, socket.SO_RCVBUF),
        ):
            if (size := broker.configs[key]) != -1:
                sock.setsockopt(socket.SOL_SOCKET, option, size)  # accepted connections inherit it
        sock.bind((host, port))
    except (OSError, socket.gaierror) as error:
        sock.close()
        raise ConfigError(f"listeners: cannot listen on {listener.name}://{listener.bind}: {error}") from error
    return sock
