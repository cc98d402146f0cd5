"""What brokers and controllers have in common: accepted connections, links to other nodes, requests, timers and jobs.

A node uses no socket, clock or thread. Its driver (`transport/server.py`, the simulator, the tests) reports events:
bytes arrived, a connection closed, a link was lost, time has passed, a job has ended. After each event it takes the
node's `Effects` in one call and carries them out in the order of `carry_out`.

Requests are served in turns. A connection's turn ends after TURN_FRAMES_MAX requests or TURN_BYTES_MAX bytes of
requests; its further requests wait until the other connections have had their turn. Connections of the cluster's own
nodes come first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from raylog.config.network import ConnectionLimits
from raylog.core.clock import Now
from raylog.core.errors import InvariantViolation, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.journal import Journal
from raylog.protocol.wire import Buffer
from raylog.quotas.client_quotas import Limit
from raylog.quotas.connections import AT_ONCE, REFUSED, ConnectionRates
from raylog.quotas.rate import Sampling
from raylog.security.authenticator import Authenticator, NoSasl
from raylog.security.cluster_secret import MECHANISM, NONCE_BYTES, SecretProver, SecretVerifier
from raylog.security.principal import ANONYMOUS, Principal
from raylog.security.sasl.server import OfferedMechanism, SaslAuthenticator
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.advertised_features import NO_FEATURES, AdvertisedFeatures
from raylog.transport.commits import CommitQueues, CommitSource
from raylog.transport.connection_counts import ConnectionCounts, door_of
from raylog.transport.delayed import DelayedOperations
from raylog.transport.dispatch import dispatch
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.exchange import COMMIT_MS_MAX, Exchange, Handler
from raylog.transport.peer_link import LinkState, PeerLink
from raylog.transport.request_times import RequestTimes
from raylog.transport.slow_requests import SlowRequests
from raylog.transport.throttled_connections import ThrottledConnections
from raylog.transport.throttling import RequestQuotas

SHRINK_IDLE_MS: Final = 10_000
"""A connection idle for this long releases its large buffer, if it has one."""
UNAUTHENTICATED_MS_MAX: Final = 30_000
"""A connection that is not authenticated after this time is closed within SHRINK_IDLE_MS."""
NEVER_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """This incarnation of a node, and the secret shared by the nodes of its cluster."""

    node_id: BrokerId
    cluster_id: str
    incarnation_id: UUID
    cluster_secret: bytes


class JobKind(Enum):
    """What a job does. Jobs of different kinds do not wait for each other."""

    WRITE = "write"
    """It changes files. These run one after another."""
    READ = "read"
    """It waits for the disk, and changes nothing."""
    COMPUTE = "compute"
    """It takes CPU time, without the GIL for most of it."""
    AUTHENTICATE = "authenticate"
    """It checks credentials, and may wait for another service."""
    DOWNLOAD = "download"
    """It gets a document from another service, within bounded time."""
    CLEAN = "clean"
    """It waits for the cleaning of a log."""
    CHECK_KEYS = "check-keys"
    """It reads TLS keys or keytabs that an administrator has named."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work that may block: `run` uses no state of the node and belongs in another thread.

    Its end is an event: `Node.job_ended` calls `done`, with None or the error that `run` raised.
    """

    run: Callable[[], None]
    done: Callable[[Any], None]
    kind: JobKind = JobKind.WRITE
    expected: type[Exception] | tuple[type[Exception], ...] = OSError
    """What `run` may raise; anything else is a bug."""


class Effects(NamedTuple):
    """What a node wants done after an event; carried out by `carry_out`."""

    connections: Collection[AcceptedConnection]
    """Connections with output to write, to resume reading, or to close."""
    links: Collection[PeerLink]
    """Links that need a connection, have output, or are to be closed."""
    jobs: Sequence[Job]


class Driver(Protocol):
    """Carries out the effects of a node, and reports events to it."""

    def flush(self, connection: AcceptedConnection) -> None:
        """Write `Node.take_output`, pause or resume reading as the connection requires, close it if closing."""

    def update_link(self, link: PeerLink) -> None:
        """Connect the link, write its output, or close its connection, as it requires."""

    def run_job(self, job: Job) -> None:
        """Run the job off the loop, and report `Node.job_ended`."""

    def call_next_turn(self) -> None:
        """Report `Node.next_turn`, after the events that have arrived meanwhile."""

    def wake_at(self, due_ms: int) -> None:
        """Report `Node.tick` at this time (monotonic)."""


def carry_out(node: Node, driver: Driver) -> None:
    """Take the effects of the last event, and carry them out in the one order that every driver follows."""
    connections, links, jobs = node.take_effects()
    for connection in connections:
        driver.flush(connection)
    for link in links:
        driver.update_link(link)
    for job in jobs:
        driver.run_job(job)
    if node.wants_turn:
        driver.call_next_turn()
    driver.wake_at(node.next_tick_ms())


@dataclass(slots=True)
class _PeriodicTask:
    """A periodic task of the node."""

    interval_ms: int
    do: Callable[[Now], None]
    due_ms: int


@dataclass(slots=True)
class _Turns:
    """The connections with pending requests, in the order in which they are served."""

    internal: deque[AcceptedConnection] = field(default_factory=deque)
    clients: deque[AcceptedConnection] = field(default_factory=deque)
    queued: set[AcceptedConnection] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.queued)

    def add(self, connection: AcceptedConnection) -> None:
        if connection not in self.queued:
            self.queued.add(connection)
            (self.internal if connection.listener.internal else self.clients).append(connection)

    def take(self) -> AcceptedConnection:
        connection = (self.internal or self.clients).popleft()
        self.queued.remove(connection)
        return connection


class Node:
    """One incarnation of a broker or a controller. Any InvariantViolation ends it."""

    handlers: Mapping[int, Handler] = {}
    """By API key; other APIs are not supported."""
    commit_ms_max: int | None = COMMIT_MS_MAX
    keeps_idle_links = False
    """Whether connections of other nodes stay open however long they are idle."""

    def __init__(
        self, identity: NodeIdentity, limits: ConnectionLimits, *, new_nonce: Callable[[int], bytes], now: Now
    ) -> None:
        self.identity = identity
        self.journal = Journal()
        self.delayed = DelayedOperations()
        self.failed_authentication_delay_ms = limits.failed_authentication_delay_ms
        self.commits = CommitQueues()
        self.times = RequestTimes()
        self.slow_requests = SlowRequests(self.journal)
        self.connection_counts: dict[tuple[str, str], ConnectionCounts] = {}
        """By the name of the listener and the door."""
        self.quotas: RequestQuotas | None = None
        """Charges clients for what they use; None if no client has a quota."""
        self.links: list[PeerLink] = []
        self.now = now
        """The time of the current or last event."""
        self.now_ms = now.monotonic_ms
        """The same, of the monotonic clock."""
        self.work_clock_ns: Callable[[], int] = lambda: self.now_ms * 1_000_000
        """Measures the work for single requests; a shell sets a clock that advances within an event."""
        self.on_keys_set: Callable[[], None] = lambda: None
        """Called after the TLS keys of a listener have been set at run time; a shell reads them again."""
        self.unsent_bytes = 0
        """Output passed to the driver that peers have not read."""
        self._limits = limits
        self.connection_rates = ConnectionRates(
            Sampling(limits.rate_samples, limits.rate_window_ms),
            rate_max=limits.creation_rate_max,
            listener_rates=limits.listener_creation_rates,
        )
        self._new_nonce = new_nonce
        self._connections: dict[AcceptedConnection, None] = {}
        """All open connections, the longest idle one first."""
        self._connections_per_host: dict[str, int] = {}
        self._touched: dict[AcceptedConnection, None] = {}
        self._touched_links: dict[PeerLink, None] = {}
        self._runnable = _Turns()
        self._waiting = _Turns()
        """Connections that have used up their turn and have more requests."""
        self._jobs: list[Job] = []
        self._steps: deque[tuple[Callable[[Now], bool], AcceptedConnection | None]] = deque()
        """With the connection whose request is answered in steps."""
        self._throttled = ThrottledConnections()
        self._event = 0
        """Counts events: a connection has one turn in each."""
        self._served: AcceptedConnection | None = None
        """The connection that has its turn."""
        self._working_for: AcceptedConnection | None = None
        """Whose request, or step of an answer, is in progress; it stays if that raises."""
        self._periodic_tasks: list[_PeriodicTask] = []
        self._due_ms: int | None = None
        """When the next periodic task or link is due; None: unknown, since one of them has changed."""
        self._deadlines: list[Callable[[], int | None]] = [
            self.delayed.next_deadline_ms,
            self.commits.next_deadline_ms,
            self._throttled.next_deadline_ms,
        ]
        if limits.idle_ms >= 0:
            self.add_periodic_task(max(limits.idle_ms // 10, 1), self._close_idle, now)
        self.add_periodic_task(SHRINK_IDLE_MS, self._tend_connections, now)

    # --- for subclasses to override

    @property
    def accepting(self) -> bool:
        """Whether the listeners should be open. Once open, they stay open."""
        return True

    def handlers_on(self, listener: Listener) -> Mapping[int, Handler]:
        """What is served on this listener, by API key."""
        return self.handlers

    def commit_sources(self, api_key: int) -> Sequence[CommitSource]:
        """The logs that every response of this API depends on."""
        return ()

    def features(self) -> AdvertisedFeatures:
        """The features that ApiVersions reports for this node and its cluster."""
        return NO_FEATURES

    def start(self, endpoints: Mapping[str, Endpoint], now: Now) -> None:
        """The sockets are bound; `endpoints` are the advertised ones by listener name."""

    def begin_shutdown(self, now: Now) -> None:
        """A stop is requested: start handing over work that other nodes can continue."""

    @property
    def can_close(self) -> bool:
        """After `begin_shutdown`: whether the hand-over is complete, or its time is over."""
        return True

    def close(self, now: Now) -> None:
        """A clean stop."""
        self.close_connections(now)

    def abandon(self) -> None:
        """Release everything without marking the stop as clean."""

    def prepare_scrape(self, now: Now, done: Callable[[], None]) -> None:
        """Ask other nodes for what metrics show of them. `done` is called once, unless one of them hangs."""
        done()

    def connection_limit(self, address: str) -> Limit | None:
        """The quota of new connections from a peer."""
        return None

    def new_authenticator(self, listener: Listener, peer_host: str) -> Authenticator:
        """How the peer of a new connection is authenticated: by the cluster's secret on the internal listener."""
        if listener.internal:
            secret, nonce = self.identity.cluster_secret, self._new_nonce(NONCE_BYTES)
            return SaslAuthenticator({MECHANISM: OfferedMechanism(lambda: SecretVerifier(secret, nonce))})
        return NoSasl()

    def principal_without_sasl(
        self, connection: AcceptedConnection, certificate: bytes | None
    ) -> Principal | Callable[[], Principal]:
        """Whom a client's connection and certificate stand for, or a function that may block and returns it.

        Both raise KafkaError(SASL_AUTHENTICATION_FAILED).
        """
        return ANONYMOUS

    # --- connections

    def connection_opened(self, listener: Listener, peer_host: str, now: Now) -> AcceptedConnection | None:
        """The new connection, or None if a connection limit is reached."""
        counts = self.connection_counts.setdefault((listener.name, door_of(peer_host)), ConnectionCounts())
        connection = self._new_connection(listener, peer_host, counts, now)
        if connection is None:
            counts.refused += 1
        else:
            counts.opened += 1
        return connection

    def _new_connection(
        self, listener: Listener, peer_host: str, counts: ConnectionCounts, now: Now
    ) -> AcceptedConnection | None:
        limits = self._limits
        from_host = self._connections_per_host.get(peer_host, 0)
        per_host_max = limits.connections_per_address.get(peer_host, limits.connections_per_host_max)
        if not listener.internal and (len(self._connections) >= limits.connections_max or from_host >= per_host_max):
            return None
        own_limit = limits.limits_of(listener.name)
        if own_limit is not None and self._open_on(listener) >= own_limit:
            return None
        delay = AT_ONCE
        if not listener.internal:
            limit = self.connection_limit(peer_host)
            delay = self.connection_rates.opened(listener.name.upper(), peer_host, limit, now.monotonic_ms)
            if delay is REFUSED:
                return None
        connection = AcceptedConnection(
            listener,
            peer_host,
            frame_bytes_max=limits.frame_bytes_max,
            unauthenticated_bytes_max=limits.unauthenticated_bytes_max,
            authenticator=self.new_authenticator(listener, peer_host),
            now=now,
            counts=counts,
        )
        self._connections[connection] = None
        self._connections_per_host[peer_host] = from_host + 1
        if delay.wait_ms:
            connection.refused = delay.closes
            self._throttled.add(connection, now.monotonic_ms + delay.wait_ms)
        return connection

    def _open_on(self, listener: Listener) -> int:
        """How many connections one listener has, through all its doors."""
        return sum(
            counts.opened - counts.closed
            for (name, _), counts in self.connection_counts.items()
            if name == listener.name
        )

    def bytes_received(self, connection: AcceptedConnection, count: int, now: Now) -> None:
        self._begin_event(now)
        connection.bytes_received(count)
        connection.counts.bytes_in += count
        connection.last_active_ms = now.monotonic_ms
        self._connections[connection] = self._connections.pop(connection)
        self._take_turn(connection, now)
        if connection.closing or not connection.wants_bytes:
            self._touched[connection] = None
        self.run(now)

    def connection_secured(self, connection: AcceptedConnection, certificate: bytes | None, now: Now) -> None:
        """The TLS handshake is complete; `certificate` is the client's, in DER format."""
        self._begin_event(now)
        if connection.listener.security.by_sasl or connection.listener.internal:
            connection.authenticator.certificate = certificate
        else:
            self.identify(connection, certificate)
            self.run(now)

    def identify(self, connection: AcceptedConnection, certificate: bytes | None) -> None:
        """Determine the principal of a connection without SASL. It takes no request before that."""
        try:
            found = self.principal_without_sasl(connection, certificate)
        except KafkaError as error:
            self._identified(connection, error)
            return
        if isinstance(found, Principal):
            self._identified(connection, found)
        else:
            connection.identifying = True
            self.check_credentials(connection, found, partial(self._identified, connection))

    def _identified(self, connection: AcceptedConnection, found: Principal | Exception) -> None:
        connection.identifying = False
        if isinstance(found, Exception):
            connection.counts.unauthenticated += 1
            connection.close(f"authentication failed: {getattr(found, 'message', found)}")
        else:
            connection.authenticator = NoSasl(found)
            connection.authentication_completed()
        self.touch(connection)

    def output_sent(self, connection: AcceptedConnection, unsent_bytes: int, now: Now) -> None:
        """The peer has not read this much of its output yet. Above the driver's limit the connection is not writable.

        Requests that waited for the peer to read are served.
        """
        self._begin_event(now)
        self.unsent(connection, unsent_bytes)
        connection.last_output_ms = now.monotonic_ms
        self.touch(connection)
        self.run(now)

    def unsent(self, connection: AcceptedConnection, unsent_bytes: int) -> None:
        """As `output_sent`, but called by a driver while it writes: no request is served yet."""
        self.unsent_bytes += unsent_bytes - connection.unsent_bytes
        connection.unsent_bytes = unsent_bytes

    def connection_closed(self, connection: AcceptedConnection, now: Now) -> None:
        """The socket is closed: operations that only wait for data are dropped. Closing twice is allowed."""
        if connection not in self._connections:
            return
        if connection.closing:
            self.journal.note(now, "connection closed", peer=connection.peer_host, why=connection.close_reason)
        self.now, self.now_ms = now, now.monotonic_ms
        del self._connections[connection]
        connection.counts.closed += 1
        self._touched.pop(connection, None)
        connection.close("closed by the peer")
        self.unsent(connection, 0)
        self._throttled.forget(connection)  # it may be for long
        remaining = self._connections_per_host[connection.peer_host] - 1
        if remaining:
            self._connections_per_host[connection.peer_host] = remaining
        else:
            del self._connections_per_host[connection.peer_host]
        for exchange in connection.unfinished:
            assert isinstance(exchange, Exchange)
            exchange.cancel()

    def close_connections(self, now: Now, reason: str = "the node is stopping") -> None:
        """Close every connection: the node stops, or has lost the leadership that all its responses depend on."""
        for connection in list(self._connections):
            connection.close(reason)
            self.connection_closed(connection, now)
            self._touched[connection] = None  # its driver closes the socket

    def touch(self, connection: AcceptedConnection) -> None:
        """The connection has output, or may take its next request."""
        self._touched[connection] = None
        if connection is not self._served:
            self._runnable.add(connection)

    def run(self, now: Now) -> None:
        """Give each touched connection its turn. Serving one may complete requests of another, and touch it."""
        while self._runnable:
            connection = self._runnable.take()
            if connection.turn.used_up(self._event):
                self._wait_for_turn(connection)
            else:
                self._take_turn(connection, now)

    def next_turn(self, now: Now) -> None:
        """One more turn for a connection that has used up its own, and one call of the next step function."""
        self._begin_event(now)
        if self._waiting:
            connection = self._waiting.take()
            connection.waits_for_turn = False
            connection.queue_ms = self.now_ms - connection.waits_since_ms
            self.touch(connection)
            self.run(now)
            connection.queue_ms = 0
        if self._steps:
            step, self._working_for = self._steps.popleft()
            if step(now):
                self._steps.append((step, self._working_for))
            self._working_for = None
            self.run(now)

    def _wait_for_turn(self, connection: AcceptedConnection) -> None:
        if not connection.waits_for_turn:
            connection.waits_for_turn, connection.waits_since_ms = True, self.now_ms
        self._waiting.add(connection)

    def _take_turn(self, connection: AcceptedConnection, now: Now) -> None:
        turn = connection.turn
        self._served = self._working_for = connection
        try:
            while (frame := connection.next_request()) is not None:
                dispatch(self, connection, frame, now)
                if turn.used(self._event, len(frame)):
                    if connection.buffered_bytes:
                        self._wait_for_turn(connection)
                    break
        finally:
            self._served = None
        self._working_for = None

    def take_failed(self) -> AcceptedConnection | None:
        """After an event that has raised: the connection whose request has failed, if it was one."""
        failed, self._working_for = self._working_for, None
        return failed

    def exchange_completed(self, exchange: Exchange) -> None:
        ended_ns = self.work_clock_ns()
        self.times.record(exchange, ended_ns)
        took_ns = ended_ns - exchange.began_ns
        if took_ns >= self.slow_requests.check_from_ns or exchange.queue_ms:
            self.slow_requests.completed(exchange, took_ns)
        connection = exchange.connection
        connection.last_output_ms = self.now_ms
        connection.counts.bytes_out += exchange.output_bytes
        if exchange.throttle_ms > 0 and not exchange.cancelled:
            self._throttled.add(connection, self.now_ms + exchange.throttle_ms)

    # --- effects

    def take_effects(self) -> Effects:
        """The effects since the last call. For `carry_out`."""
        connections, self._touched = self._touched, {}
        links: Collection[PeerLink] = ()
        jobs: Sequence[Job] = ()
        if self._touched_links:
            links, self._touched_links = self._touched_links, {}
        if self._jobs:
            jobs, self._jobs = self._jobs, []
        return Effects(connections, links, jobs)

    @property
    def wants_turn(self) -> bool:
        """Whether `next_turn` has work to do."""
        return bool(self._waiting) or bool(self._steps)

    def take_output(self, connection: AcceptedConnection) -> list[Buffer]:
        """The output of a connection, for its driver to write. Requests that waited for this get their turn later."""
        was_full = connection.output_is_full
        output = connection.take_output()
        if was_full and not connection.muted:
            self._wait_for_turn(connection)
        return output

    def add_job(self, job: Job) -> None:
        """Have the driver run the job off the loop."""
        self._jobs.append(job)

    def check_credentials(
        self, connection: AcceptedConnection, run: Callable[[], Any], then: Callable[[Any], None]
    ) -> None:
        """Call `run` off the loop, then `then` with what it has returned, or with the exception that it has raised.

        Neither is called once the connection is closed, so that clients that have given up delay no others. A
        connection whose check takes longer than UNAUTHENTICATED_MS_MAX is closed.
        """
        results: list[Any] = []
        connection.checked_since_ms = self.now_ms

        def checked() -> None:
            if not connection.closing:
                results.append(run())

        def done(failure: Exception | None) -> None:
            connection.checked_since_ms = None
            if not connection.closing:
                then(results[0] if failure is None else failure)

        self.add_job(Job(checked, done, JobKind.AUTHENTICATE, expected=Exception))

    def add_steps(self, step: Callable[[Now], bool], connection: AcceptedConnection | None = None) -> None:
        """Call `step` between requests as long as it returns True. Each call must be short.

        If it raises, the connection is closed whose request it answers; one for no request ends the node.
        """
        self._steps.append((step, connection))

    def job_ended(self, job: Job, failure: BaseException | None, now: Now) -> None:
        """A job has run. An error that it is not expected to raise is a bug, and ends the node."""
        self._begin_event(now)
        if failure is not None and not isinstance(failure, job.expected):
            raise InvariantViolation(f"a job failed: {failure!r}") from failure
        if failure is not None:
            self.journal.note(now, "job failed", why=failure)
        job.done(failure)
        self.run(now)

    def _begin_event(self, now: Now) -> None:
        self.now, self.now_ms = now, now.monotonic_ms
        self._event += 1

    # --- links

    def new_link(
        self,
        peer: str,
        *,
        on_ready: Callable[[Now], None] | None = None,
        on_lost: Callable[[Now], None] | None = None,
        on_gone: Callable[[Now], None] | None = None,
    ) -> PeerLink:
        """A connection of this node to the internal listener of `peer`, a name that its shell can resolve."""
        link = PeerLink(
            peer,
            client_id=f"node-{self.identity.node_id}",
            on_touched=self._touch_link,
            on_ready=on_ready,
            on_lost=on_lost,
            on_gone=on_gone,
        )
        self.links.append(link)
        self._due_ms = None
        return link

    def drop_link(self, link: PeerLink) -> None:
        """Close the connection for good. Requests in flight fail."""
        link.retire()
        if link.state is LinkState.DOWN:
            self.links.remove(link)

    def link_connected(self, link: PeerLink, now: Now) -> None:
        self._begin_event(now)
        link.connected(SecretProver(self.identity.cluster_secret, self._new_nonce(NONCE_BYTES)), now)
        self.run(now)

    def link_bytes_received(self, link: PeerLink, count: int, now: Now) -> None:
        self._begin_event(now)
        link.bytes_received(count, now)
        self.run(now)

    def link_lost(self, link: PeerLink, reason: str, now: Now) -> None:
        """The connection of the link is closed, or could not be made."""
        self._begin_event(now)
        if link.ready:
            self.journal.note(now, "link lost", peer=link.peer, why=reason)
        link.lost(reason, now)
        if link.retired:
            self.links.remove(link)
        self._due_ms = None
        self.run(now)

    def _touch_link(self, link: PeerLink) -> None:
        self._touched_links[link] = None
        self._due_ms = None

    def peer_endpoint(self, peer: str) -> Endpoint | None:
        """The endpoint of a link's peer, if this node knows it; None: its shell resolves it.

        Raises OSError if the peer cannot be found now.
        """
        return None

    # --- time

    def add_periodic_task(self, interval_ms: int, do: Callable[[Now], None], now: Now) -> None:
        self._periodic_tasks.append(_PeriodicTask(interval_ms, do, now.monotonic_ms + interval_ms))
        self._due_ms = None

    def watch_deadline(self, next_deadline_ms: Callable[[], int | None]) -> None:
        """Have `tick` called at the time that this returns (monotonic), if any. It is called after every event."""
        self._deadlines.append(next_deadline_ms)

    def tick(self, now: Now) -> None:
        """Run what is due: expired long polls, reconnects of links, periodic tasks."""
        self._begin_event(now)
        self._due_ms = None
        self.delayed.expire(now.monotonic_ms)
        self.commits.expire(now.monotonic_ms)
        self._release_throttled(now.monotonic_ms)
        for link in self.links:
            link.tick(now)
        for task in self._periodic_tasks:
            if now.monotonic_ms >= task.due_ms:
                task.due_ms = now.monotonic_ms + task.interval_ms
                task.do(now)
        self.run(now)

    def next_tick_ms(self) -> int:
        """The earliest time at which `tick` has work to do (monotonic). Called after every event."""
        due_ms = self._due_ms
        if due_ms is None:
            links = (link.next_tick_ms() for link in self.links)
            due_ms = min((task.due_ms for task in self._periodic_tasks), default=NEVER_MS)
            due_ms = self._due_ms = min([due_ms, *(ms for ms in links if ms is not None)])
        for next_deadline_ms in self._deadlines:
            deadline_ms = next_deadline_ms()
            if deadline_ms is not None and deadline_ms < due_ms:
                due_ms = deadline_ms
        return due_ms

    def _release_throttled(self, monotonic_ms: int) -> None:
        for connection in self._throttled.take_ended(monotonic_ms):
            if connection.refused:
                connection.close("its address opens connections faster than its quota connection_creation_rate permits")
            self.touch(connection)

    def _tend_connections(self, now: Now) -> None:
        for connection in self._connections:
            since_ms = connection.checked_since_ms if connection.authenticated else connection.opened_ms
            if since_ms is not None and now.monotonic_ms - since_ms >= UNAUTHENTICATED_MS_MAX:
                connection.close(f"not authenticated within {UNAUTHENTICATED_MS_MAX // 1000} s")
                self._touched[connection] = None
        self._shrink_idle(now)

    def _shrink_idle(self, now: Now) -> None:
        for connection in self._connections:
            if now.monotonic_ms - connection.last_active_ms < SHRINK_IDLE_MS:
                return
            connection.shrink()

    def _close_idle(self, now: Now) -> None:
        for connection in self._connections:
            if now.monotonic_ms - connection.last_active_ms < self._limits.idle_ms:
                return
            if now.monotonic_ms - connection.last_output_ms < self._limits.idle_ms:
                continue
            if not connection.in_work and not (self.keeps_idle_links and connection.listener.internal):
                connection.close("idle for longer than connections.max.idle.ms")
                self._touched[connection] = None
