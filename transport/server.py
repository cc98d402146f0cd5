"""(shell) A node's sockets: asyncio's callbacks become events of `Node`, and its output is written to the sockets.

Everything here runs on one event loop, the only writer of the node's state.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Final

from raylog.config.compaction import CLEANER_THREADS_MAX
from raylog.config.metrics import metrics_settings
from raylog.config.network import SocketOptions
from raylog.config.tls import SSL_CLIENT_AUTH, TlsSettings, listener_tls_settings
from raylog.core.config import Configs
from raylog.core.errors import ConfigError, InvariantViolation, KafkaError
from raylog.core.metrics import exposition
from raylog.security.tls import client_context
from raylog.transport import node_metrics
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.bind import bind, listen
from raylog.transport.daemon_threads import DaemonThreads
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.listener_tls import ListenerTls
from raylog.transport.metrics_endpoint import MetricsEndpoint
from raylog.transport.node import Job, JobKind, Node, carry_out
from raylog.transport.peer_link import PeerLink
from raylog.transport.server_metrics import SERVER_METRICS, Served
from raylog.transport.socket_endpoints import AcceptedEndpoint, Handshake, LinkEndpoint, ServedEndpoint, SocketEndpoint
from raylog.transport.system_time import now
from raylog.transport.tls_endpoint import TlsEndpoint
from raylog.transport.turn_times import SLOW_TURN_NS, TurnTimes, name_of

log = logging.getLogger("raylog.transport")
DIAL_SECONDS_MAX = 5.0
TLS_REFRESH_SECONDS = 2.0
"""How often the files with TLS keys are checked."""
TICK_SECONDS_MAX = 1.0
TURNS_NS_MAX = 2_000_000
"""How long connections get further turns before the loop polls for new events."""
THREADS: Final = {
    JobKind.WRITE: 1,
    JobKind.READ: 2,
    JobKind.COMPUTE: 2,
    JobKind.AUTHENTICATE: 4,
    JobKind.DOWNLOAD: 2,
    JobKind.CLEAN: CLEANER_THREADS_MAX,
    JobKind.CHECK_KEYS: 1,
}
"""Threads for each kind of job: a client whose batches take long to check does not delay reads of others."""
MAY_HANG: Final = (JobKind.AUTHENTICATE, JobKind.DOWNLOAD, JobKind.CHECK_KEYS)
"""They call functions and services of others, or read files that others have named. A stop does not wait for them."""
HANDSHAKE_THREADS = 2
HANDSHAKES_MAX = 2000
"""TLS handshakes in progress. Beyond this the oldest is given up: silent peers do not keep others out."""
ENCRYPTED_BYTES: Final = 256 << 10


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
        configs: Callable[[], Configs] | None = None,
        scrape: Callable[[], Iterator[str]] = lambda: iter(()),
    ) -> None:
        """`configs` contain the TLS keys of listeners, and where metrics are shown; without them they are not.
        `scrape` gives the metrics of this kind of node, beside those of any.

        Raises ConfigError if keys cannot be read.
        """
        self.node = node
        node.work_clock_ns = perf_counter_ns
        node.on_keys_set = self._keys_set
        self.listeners = listeners
        self.options = options
        self._resolve = resolve
        self._on_failure = on_failure
        self._tls: dict[str, ListenerTls] = {}
        """For what each listener accepts, by its name."""
        self._link_tls: ListenerTls | None = None
        """For the links to other nodes; None: they have no TLS."""
        for listener in listeners:
            if listener.security.by_tls:
                assert configs is not None
                settings = partial(_tls_settings, configs, listener)
                if settings().client_auth != configs().for_listener(listener.name)[SSL_CLIENT_AUTH]:
                    reason = "ssl.client.auth is ignored with SASL_SSL; set listener.name.<name>.ssl.client.auth"
                    log.warning(
                        "client authentication not applied", extra={"listener": listener.name, "reason": reason}
                    )
                self._tls[listener.name] = ListenerTls(listener.name, settings)
                if listener.internal:
                    make = partial(client_context, check_host_name=True)
                    self._link_tls = ListenerTls(listener.name, settings, make=make)
        self._refreshing: asyncio.Task[None] | None = None
        self._keys_were_set = asyncio.Event()
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._opened: asyncio.Future[None]
        self._opening: asyncio.Task[None] | None = None
        self._closable: asyncio.Future[None] | None = None
        self._endpoints: dict[AcceptedConnection, ServedEndpoint] = {}
        self._dials: dict[PeerLink, asyncio.Task[None]] = {}
        self._link_endpoints: dict[PeerLink, LinkEndpoint] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._serving = False
        self._failed = False
        self._turn_called = False
        self._threads = {
            kind: ThreadPoolExecutor(max_workers=count, thread_name_prefix=f"raylog-{kind.value}")
            for kind, count in THREADS.items()
            if kind not in MAY_HANG
        }
        self._daemon_threads = {kind: DaemonThreads(THREADS[kind], name=f"raylog-{kind.value}") for kind in MAY_HANG}
        self.handshake_threads = ThreadPoolExecutor(HANDSHAKE_THREADS, thread_name_prefix="raylog-handshake")
        self._handshakes: dict[Handshake, None] = {}
        """Those in progress, the oldest first."""
        self.encrypted = memoryview(bytearray(ENCRYPTED_BYTES))
        """What a socket has received last, for TLS to decrypt at once."""
        self.turns = TurnTimes()
        self.jobs = dict.fromkeys(JobKind, 0)
        """Jobs of each kind that have not ended."""
        self.metrics = MetricsEndpoint(self._scrape, lambda: self._serving and bool(self._servers), self._prepare)
        self._configs = configs
        self._scrape_node = scrape
        self.bound: dict[str, Endpoint] = {}
        """The bound endpoint of each listener, by name."""

    async def start(self) -> None:
        """Bind every listener, start the node, and return once its listeners are open.

        Raises ConfigError for an address that cannot be bound, and the node's errors; everything is then released.
        """
        self._opened = asyncio.get_running_loop().create_future()
        try:
            for listener in self.listeners:
                self._sockets.append(await bind(listener, self.options))
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
            address = None if self._configs is None else metrics_settings(self._configs()).shown_at
            if address is not None:
                await self.metrics.open(address, self.node.identity.node_id)
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
        for daemon_threads in self._daemon_threads.values():
            daemon_threads.shutdown()
        for threads in (*self._threads.values(), self.handshake_threads):
            await asyncio.get_running_loop().run_in_executor(None, partial(threads.shutdown, cancel_futures=True))

    def _close_servers(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
        self.metrics.close()
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
            await self._read_tls_keys(again=False)
            for listener, sock in zip(self.listeners, sockets, strict=True):
                listen(listener, sock, self.options)
                factory = self._endpoint_factory(listener)
                self._servers.append(await loop.create_server(factory, sock=sock, backlog=self.options.backlog))
            if self._tls:
                self._refreshing = loop.create_task(self._refresh_tls())
            await self.open_more()
        except OSError as error:
            self._opened.set_exception(ConfigError(f"listeners: cannot listen: {error}"))
        except Exception as error:
            self._opened.set_exception(error)
        else:
            self._opened.set_result(None)

    def _endpoint_factory(self, listener: Listener) -> Callable[[], AcceptedEndpoint]:
        """Makes the endpoint of each connection that the listener accepts."""
        tls = self._tls.get(listener.name)
        return partial(AcceptedEndpoint, self, listener) if tls is None else partial(TlsEndpoint, self, listener, tls)

    async def _refresh_tls(self) -> None:
        """Use new keys soon after their files or the configuration have changed."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._keys_were_set.wait(), TLS_REFRESH_SECONDS)
            again = self._keys_were_set.is_set()
            self._keys_were_set.clear()
            await self._read_tls_keys(again=again)

    async def _read_tls_keys(self, *, again: bool) -> None:
        """Read the keys that have changed; with `again` the others too."""
        for tls in (*self._tls.values(), *([self._link_tls] if self._link_tls is not None else [])):
            await asyncio.get_running_loop().run_in_executor(None, partial(tls.refresh, again=again))

    def _keys_set(self) -> None:
        self._keys_were_set.set()

    def _scrape(self) -> Iterator[str]:
        yield from node_metrics.scrape(self.node)
        yield from self._scrape_node()
        yield from exposition(SERVER_METRICS, Served(self.turns, self.jobs, self.metrics.cost))

    def _prepare(self, done: Callable[[], None]) -> None:
        self.event(lambda: self.node.prepare_scrape(now(), done))

    async def open_more(self) -> None:
        """For a node with endpoints other than its listeners: opened together with them."""

    def close_more(self) -> None:
        """Closed together with the listeners."""

    def event(self, report: Callable[[], None], *, endpoint: ServedEndpoint | SocketEndpoint | None = None) -> None:
        """Report one event to the node and carry out its effects.

        An unexpected error closes the connection whose request it met, or from which the event came; without a
        connection it ends the node.
        """
        began_ns = perf_counter_ns()
        try:
            report()
        except InvariantViolation as violation:
            self.fail(violation)
            return
        except Exception as error:
            failed = self.node.take_failed()
            if failed is not None:
                endpoint = self._endpoints.get(failed)
            elif endpoint is None:
                self.fail(InvariantViolation(f"an event failed: {error!r}"), cause=error)
                return
            log.exception("event failed", extra={"peer": "closed" if endpoint is None else endpoint.peer})
            if endpoint is not None:
                endpoint.abort()
        self.after_event()
        turns = self.turns
        took_ns = perf_counter_ns() - began_ns
        turns.busy_ns += took_ns
        if took_ns > turns.notable_ns:
            turns.record(took_ns, report)
            if took_ns > SLOW_TURN_NS:
                self.node.journal.note(now(), "slow turn", of=name_of(report), took_ms=took_ns // 1_000_000)

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

    def link_lost(self, link: PeerLink, endpoint: LinkEndpoint, reason: str) -> None:
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
        self.jobs[job.kind] += 1
        loop = asyncio.get_running_loop()

        def run() -> None:
            failure: BaseException | None = None
            try:
                job.run()
            except BaseException as error:  # the end of every job must be reported, whatever its error
                failure = error
            with suppress(RuntimeError):  # the loop is closed: the node did not wait for this job
                loop.call_soon_threadsafe(self._job_ended, job, failure)

        if job.kind in MAY_HANG:
            self._daemon_threads[job.kind].submit(run)
        else:
            self._threads[job.kind].submit(run)

    def _job_ended(self, job: Job, failure: BaseException | None) -> None:
        self.jobs[job.kind] -= 1
        if self._serving:
            self.event(partial(self.node.job_ended, job, failure, now()))

    async def _dial(self, link: PeerLink) -> None:
        endpoint = LinkEndpoint(self, link)
        try:
            async with asyncio.timeout(DIAL_SECONDS_MAX):
                where = self.node.peer_endpoint(link.peer) or await self._resolve(link.peer)
                tls = None if self._link_tls is None else self._link_tls.context
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: endpoint, where.host, where.port, ssl=tls)
        except Exception as error:  # of any kind: the link would wait forever for a result
            if not isinstance(error, OSError):
                log.exception("connection attempt failed", extra={"peer": link.peer})
            del self._dials[link]
            if not endpoint.connected:
                self.event(partial(self.node.link_lost, link, str(error), now()), endpoint=endpoint)
        else:
            del self._dials[link]

    def link_connected(self, link: PeerLink, endpoint: LinkEndpoint) -> None:
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


def _tls_settings(configs: Callable[[], Configs], listener: Listener) -> TlsSettings:
    return listener_tls_settings(configs(), listener.name, by_sasl=listener.security.by_sasl)
