"""What brokers and controllers are alike in: connections that come in, links that go out, requests that wait.

A node is told of events and of the time, and touches no socket. Its shell (`transport/server.py`, or the simulator)
owns sockets and clock. It reports what happens and after each report looks at `take_touched()` (connections with output
to write, to be read from again, or to be closed) and `take_touched_links()` (links that want a connection, have output,
or are to be hung up).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.security.acl import OPERATIONS, Operation, Resource, ResourceType
from raylog.security.authorizer import REFUSALS, Authorizer
from raylog.security.cluster_secret import NONCE_BYTES, SecretProver, SecretVerifier
from raylog.security.principal import Client
from raylog.transport.delayed import DelayedOperations
from raylog.transport.dispatch import dispatch
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.peer_link import PeerLink
from raylog.transport.request import AcceptedConnection, RequestContext

SHRINK_IDLE_MS = 10_000
"""A connection quiet for so long gives back the large buffer it may hold."""

NEVER_MS = (1 << 63) - 1

Handler = Callable[[Any, RequestContext, Any], Any]
"""(node, context, request) to a response, or to `Parked`, `NO_RESPONSE` or `ANSWERED_LATER`."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who this incarnation of a node is, and the secret its cluster shares."""

    node_id: BrokerId
    cluster_id: str
    incarnation_id: UUID
    cluster_secret: bytes


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The bounds on what peers can open and send. The internal listener is bound by the frame size alone."""

    frame_bytes_max: int
    connections_max: int
    connections_per_host_max: int
    idle_ms: int
    """After which a silent connection is closed; negative: never."""


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """`run` may block, touches no state, and belongs into another thread; `done` is told how it ended, on the loop."""

    run: Callable[[], None]
    done: Callable[[OSError | None], None]


@dataclass(slots=True)
class _Chore:
    """Something the node does by itself, now and then."""

    interval_ms: int
    do: Callable[[Now], None]
    due_ms: int


class Node:
    """One incarnation of a broker or a controller. Any InvariantViolation ends it."""

    handlers: Mapping[int, Handler] = {}
    """By API key; what is not here is not served."""
    at_once: Set[int] = frozenset()
    """API keys whose answers tell of nothing that could still be lost, and wait for no commit."""
    authorizer: Authorizer | None = None
    """Without one everybody may do everything."""

    def __init__(
        self, identity: NodeIdentity, limits: ConnectionLimits, *, new_nonce: Callable[[int], bytes], now: Now
    ) -> None:
        self.identity = identity
        self.delayed = DelayedOperations()
        self.links: list[PeerLink] = []
        self._limits = limits
        self._new_nonce = new_nonce
        self._connections: dict[AcceptedConnection, None] = {}
        """All open connections, the one idle longest first."""
        self._connections_per_host: dict[str, int] = {}
        self._touched: dict[AcceptedConnection, None] = {}
        self._touched_links: dict[PeerLink, None] = {}
        self._runnable: deque[AcceptedConnection] = deque()
        self._chores: list[_Chore] = []
        self._due_ms: int | None = None
        """When a chore or a link has something to do; None: not known, since one of them has changed."""
        if limits.idle_ms >= 0:
            self.add_chore(max(limits.idle_ms // 10, 1), self._close_idle, now)
        self.add_chore(SHRINK_IDLE_MS, self._shrink_idle, now)

    # --- for subclasses to say

    @property
    def accepting(self) -> bool:
        """Whether the listeners should be open. Once they are they stay so."""
        return True

    @property
    def all_committed(self) -> bool:
        """Whether everything an answer may tell of is certain to last."""
        return True

    def send_when_committed(self, send: Callable[[], None]) -> None:
        """Call `send` as soon as everything decided so far is certain to last: here, at once."""
        send()

    def start(self, endpoints: Mapping[str, Endpoint], now: Now) -> None:
        """The sockets are bound; `endpoints` by listener name is what others are to be told."""

    def begin_shutdown(self, now: Now) -> None:
        """A stop is wanted: begin to hand over to others what they can go on with."""

    @property
    def may_close(self) -> bool:
        """After `begin_shutdown`: whether that is done, or is not to be waited for."""
        return True

    def close(self, now: Now) -> None:
        """A clean stop."""
        self.hang_up(now)

    def abandon(self) -> None:
        """Let go of everything without calling the stop a clean one."""

    def take_background_work(self) -> list[BackgroundWork]:
        """What should be done off the loop; each is to be run and then reported as done."""
        return []

    # --- rights

    def may(self, context: RequestContext, operation: Operation, resource: Resource) -> bool:
        """Whether the client of a request has the right."""
        return self.client_may(context.client, operation, resource)

    def client_may(self, client: Client, operation: Operation, resource: Resource) -> bool:
        return self.authorizer is None or self.authorizer.decide(*client, operation, resource).allowed

    def may_with_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        """The same for any resource of the type that there is, or could be."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.decide_by_type(*context.client, operation, resource_type).allowed

    def check(self, context: RequestContext, operation: Operation, resource: Resource) -> None:
        """Raises KafkaError, TOPIC_AUTHORIZATION_FAILED and the like, where the client has not got the right."""
        if not self.may(context, operation, resource):
            raise KafkaError(REFUSALS[resource.type])

    def operations(self, context: RequestContext, resource: Resource) -> int:
        """All that the client may do with the resource, as bits."""
        if self.authorizer is None:
            return sum(1 << operation for operation in OPERATIONS[resource.type])
        return self.authorizer.operations(context.client, resource)

    # --- connections

    def connection_opened(self, listener: Listener, peer_host: str, now: Now) -> AcceptedConnection | None:
        """The new connection, or None where a bound on connections says no."""
        limits = self._limits
        from_host = self._connections_per_host.get(peer_host, 0)
        if not listener.internal and (
            len(self._connections) >= limits.connections_max or from_host >= limits.connections_per_host_max
        ):
            return None
        verifier = None
        if listener.internal:
            verifier = SecretVerifier(self.identity.cluster_secret, self._new_nonce(NONCE_BYTES))
        connection = AcceptedConnection(
            listener, peer_host, frame_bytes_max=limits.frame_bytes_max, verifier=verifier, now=now
        )
        self._connections[connection] = None
        self._connections_per_host[peer_host] = from_host + 1
        return connection

    def bytes_received(self, connection: AcceptedConnection, count: int, now: Now) -> None:
        connection.bytes_received(count)
        connection.last_active_ms = now.monotonic_ms
        self._connections[connection] = self._connections.pop(connection)
        self.touch(connection)
        self.run(now)

    def writable_changed(self, connection: AcceptedConnection, now: Now, *, writable: bool) -> None:
        """The peer reads again (or does not): requests that waited for it are served (or wait)."""
        connection.set_writable(writable=writable)
        self.touch(connection)
        self.run(now)

    def output_taken(self, connection: AcceptedConnection, now: Now) -> None:
        """Serve what the connection held back until its output was taken."""
        self.touch(connection)
        self.run(now)

    def connection_closed(self, connection: AcceptedConnection, now: Now) -> None:
        """The socket is gone: what is parked for it is dropped. Closing twice is allowed."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._touched.pop(connection, None)
        connection.close("closed by the peer")
        remaining = self._connections_per_host[connection.peer_host] - 1
        if remaining:
            self._connections_per_host[connection.peer_host] = remaining
        else:
            del self._connections_per_host[connection.peer_host]
        if connection.parked_ticket is not None:
            self.delayed.drop(connection.parked_ticket)

    def hang_up(self, now: Now, reason: str = "the node stops") -> None:
        """Close every connection: the node stops, or knows no more what it has begun for whom."""
        for connection in list(self._connections):
            connection.close(reason)
            self.connection_closed(connection, now)
            self._touched[connection] = None  # the peer is to learn of it

    def touch(self, connection: AcceptedConnection) -> None:
        """An answer was given outside the connection's own turn: its output and its next request want attention."""
        self._touched[connection] = None
        self._runnable.append(connection)

    def take_touched(self) -> list[AcceptedConnection]:
        touched, self._touched = self._touched, {}
        return list(touched)

    def run(self, now: Now) -> None:
        """Serve what the touched connections hold; serving one may complete what another has parked, and touch it."""
        while self._runnable:
            connection = self._runnable.popleft()
            while (frame := connection.next_request()) is not None:
                dispatch(self, connection, frame, now)

    # --- links

    def new_link(
        self,
        peer: str,
        *,
        on_ready: Callable[[Now], None] | None = None,
        on_lost: Callable[[Now], None] | None = None,
        on_gone: Callable[[Now], None] | None = None,
    ) -> PeerLink:
        """A connection of this node's own to the internal listener of `peer`, a name its shell can resolve."""
        link = PeerLink(
            peer,
            client_id=f"node-{self.identity.node_id}",
            new_prover=lambda: SecretProver(self.identity.cluster_secret, self._new_nonce(NONCE_BYTES)),
            on_touched=self._touch_link,
            on_ready=on_ready,
            on_lost=on_lost,
            on_gone=on_gone,
        )
        self.links.append(link)
        self._due_ms = None
        return link

    def link_connected(self, link: PeerLink, now: Now) -> None:
        link.connected(now)
        self.run(now)

    def link_bytes_received(self, link: PeerLink, count: int, now: Now) -> None:
        link.bytes_received(count, now)
        self.run(now)

    def link_lost(self, link: PeerLink, reason: str, now: Now) -> None:
        """Also for a connection that could not be had."""
        link.lost(reason, now)
        self._due_ms = None
        self.run(now)

    def take_touched_links(self) -> list[PeerLink]:
        touched, self._touched_links = self._touched_links, {}
        return list(touched)

    def _touch_link(self, link: PeerLink) -> None:
        self._touched_links[link] = None
        self._due_ms = None

    def peer_endpoint(self, peer: str) -> Endpoint | None:
        """Where that peer of a link listens, if this node knows of it; None: its shell does.

        Raises OSError for one that is not to be found now.
        """
        return None

    # --- time

    def add_chore(self, interval_ms: int, do: Callable[[Now], None], now: Now) -> None:
        self._chores.append(_Chore(interval_ms, do, now.monotonic_ms + interval_ms))
        self._due_ms = None

    def tick(self, now: Now) -> None:
        """Do what has come due: expired long polls, links to be made again, chores."""
        self._due_ms = None
        self.delayed.expire(now.monotonic_ms)
        for link in self.links:
            link.tick(now)
        for chore in self._chores:
            if now.monotonic_ms >= chore.due_ms:
                chore.due_ms = now.monotonic_ms + chore.interval_ms
                chore.do(now)
        self.run(now)

    def next_tick_ms(self) -> int:
        """When `tick` has something to do, at the earliest (monotonic). Asked after every event."""
        due_ms = self._due_ms
        if due_ms is None:
            links = (link.next_tick_ms() for link in self.links)
            due_ms = min((chore.due_ms for chore in self._chores), default=NEVER_MS)
            due_ms = self._due_ms = min([due_ms, *(ms for ms in links if ms is not None)])
        deadline_ms = self.delayed.next_deadline_ms()
        return due_ms if deadline_ms is None else min(due_ms, deadline_ms)

    def _shrink_idle(self, now: Now) -> None:
        for connection in self._connections:
            if now.monotonic_ms - connection.last_active_ms < SHRINK_IDLE_MS:
                return
            connection.shrink()

    def _close_idle(self, now: Now) -> None:
        for connection in self._connections:
            if now.monotonic_ms - connection.last_active_ms < self._limits.idle_ms:
                return
            if not connection.in_work:
                connection.close("idle for longer than connections.max.idle.ms")
                self._touched[connection] = None
