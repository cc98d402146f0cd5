"""The machine of a simulated node: a production `Node`, driven as by its real shell, with its own disk and clocks.

The process can be killed, stopped, hang, or die in the middle of a write; the machine can lose power. The process is
always restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from raylog.core.clock import Now
from raylog.core.errors import InvariantViolation, KafkaError
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.node import Job, Node, carry_out
from raylog.transport.peer_link import PeerLink
from tests.sim.network import Connection, End, Network, Side
from tests.sim.sockets import AcceptedSocket, LinkSocket
from tests.sim.world import WALL_CLOCK_START_MS
from tests.support.sim_disk import Killed, SimDisk

SomeNode = TypeVar("SomeNode", bound=Node)
Event = Callable[[SomeNode, Now], None]
RESTART_MS = (0, 50, 400, 3000)
"""How long a process or its machine may be down."""
DISK_DELAY_MS_MAX = 300
DIAL_MS_MAX = 5000
TICK_MS_MAX = 1000


class NodeHost(Generic[SomeNode]):
    """Starts its node, and restarts it on the same disk. `peers` maps link names to hosts."""

    listeners: list[Listener]
    gives_up = False
    """Whether the node may exit if its disk fails or is full."""

    def __init__(self, network: Network, name: str, *, power_cuts: bool) -> None:
        self.world = network.world
        self.name = name
        self.disk = SimDisk(self.world.rng)
        self.node: SomeNode | None = None
        self.incarnation = 0
        self.peers: Mapping[str, NodeHost[Any]] = {}
        self.trouble = True
        """While set, a start may be killed as well."""
        self.changed_ms = 0
        """When the node last started, stopped, continued after a hang, was reconnected, or its disk was filled or
        emptied."""
        self.links_lost = 0
        self.stopping = False
        """Whether a stop was requested and the node still runs."""
        self.disk_failed = False
        """Whether the disk was made to fail since the last crash."""
        self._network = network
        self._power_cuts = power_cuts
        self._boot_ms = self.world.rng.randint(0, 1_000_000)
        self._wall_skew_ms = self.world.rng.randint(-200, 200)
        self._accepted: dict[AcceptedConnection, AcceptedSocket] = {}
        self._links: dict[PeerLink, LinkSocket] = {}
        self._unplugged: list[Connection] = []
        """Connections whose other side does not know that this machine has lost power."""
        self._hangs = False
        self._deferred: list[tuple[int, Event[SomeNode], str]] = []
        self._timer = 0
        self._timer_due_ms: int | None = None
        self._turn_called = False
        self._moment: tuple[Callable[[SomeNode], bool], Callable[[], None]] | None = None
        self._ended_uncleanly = False

    # --- for subclasses

    def make(self, now: Now) -> SomeNode:
        """The next incarnation. May raise KafkaError or Killed."""
        raise NotImplementedError

    def endpoints(self) -> dict[str, Endpoint]:
        raise NotImplementedError

    def may_end(self, violation: InvariantViolation) -> str | None:
        """Why the node may exit with this violation; None if it may not."""
        failed = self.disk_failed or self.disk.capacity_bytes is not None
        return "gave up on its disk" if failed and self.gives_up else None

    def settle_disk(self) -> None:
        """Called before each start: apply the data loss of the last crash, if it was not applied at once."""

    def check(self, node: SomeNode) -> None:
        """Called after each event: check the node's guarantees."""

    # --- lifecycle

    def now(self) -> Now:
        time_ms = self.world.time_ms
        return Now(self._boot_ms + time_ms, WALL_CLOCK_START_MS + time_ms + self._wall_skew_ms)

    def jump_wall_clock(self, by_ms: int) -> None:
        """Step the wall clock, as NTP or an operator does; the monotonic clock is unchanged."""
        self._wall_skew_ms += by_ms
        self.world.marks["wall clock jumped"] += 1

    def runs(self, incarnation: int) -> bool:
        """Whether this incarnation runs and can process events."""
        return self.node is not None and incarnation == self.incarnation and not self._hangs

    @property
    def disturbed(self) -> bool:
        """Whether the node is down, hangs, or has a full disk."""
        return self.node is None or self._hangs or self.disk.capacity_bytes is not None

    def start(self) -> None:
        if self.node is not None:
            return
        self.settle_disk()
        unplugged, self._unplugged = self._unplugged, []
        for connection in unplugged:
            connection.machine_back()
        self.incarnation += 1
        self.changed_ms = self.world.time_ms
        if self.trouble and self.incarnation > 1 and self.world.rng.random() < 0.2:
            self.disk.arm(kill_at_op=self.world.rng.randint(1, 30))
        try:
            node = self.make(self.now())
            node.start(self.endpoints(), self.now())
        except Killed:
            self._mark("killed while it recovered")
            self._crashed()
            return
        except KafkaError:
            self._mark("start refused by the disk")
            self._crashed(power_cut=False)
            return
        self.node = node
        if self._ended_uncleanly:
            self._mark("started after a crash")
        self._ended_uncleanly = False
        self._after_event(node)

    def stop_cleanly(self) -> None:
        """Stop as soon as the node may be closed. Until then it runs, and all faults may occur."""
        if self.node is not None and not self._hangs and not self.stopping:
            self.stopping = True
            self.report(self.incarnation, lambda node, now: node.begin_shutdown(now), what="shutdown")

    def _close(self, node: SomeNode) -> None:
        self.node = None
        try:
            node.close(self.now())
        except KafkaError:
            self._mark("stop spoilt by the disk")
            self._crashed(power_cut=False)
            return
        except Killed:
            self._mark("killed while it stopped")
            self._crashed()
            return
        self._mark("stopped cleanly")
        self._hang_up()
        self._come_back()

    def kill(self, *, power_cut: bool | None = None) -> None:
        """SIGKILL or a power cut: the node does nothing more."""
        if self.node is not None:
            self._mark("killed")
            self._crashed(power_cut=power_cut)

    def hang(self, for_ms: int) -> None:
        """The process is paused for a while."""
        if self.node is not None and not self._hangs:
            self._mark("hung")
            self._hangs = True
            self.world.after(for_ms, partial(self._go_on, self.incarnation))

    def at_the_moment(self, condition: Callable[[SomeNode], bool], do: Callable[[], None]) -> None:
        """Call `do` after the next event after which `condition` holds. Replaces an earlier pending call."""
        self._moment = condition, do

    def forget_moment(self) -> None:
        self._moment = None

    # --- events

    def accept(self, client: End, *, client_host: str, internal: bool = False) -> Connection | None:
        """A new connection, or None if the node does not listen."""
        if self.node is None or not self.node.accepting:
            return None
        listener = self.listeners[-1 if internal else 0]
        accepted = self.node.connection_opened(listener, client_host, self.now())
        if accepted is None:
            return None
        connection = Connection(self._network, client, client_host=client_host, server_host=self.name)
        socket = AcceptedSocket(self, accepted, connection)
        connection.attach(socket)
        self._accepted[accepted] = socket
        return connection

    def report(self, incarnation: int, event: Event[SomeNode], *, what: str = "") -> None:
        """Pass an event to the node and carry out its effects, unless that incarnation has ended."""
        node = self.node
        if node is None or incarnation != self.incarnation:
            return
        if self._hangs:
            self._deferred.append((incarnation, event, what))
            return
        try:
            event(node, self.now())
        except Killed:
            self._mark("killed within a write")
            self._crashed()
        except InvariantViolation as violation:
            why = self.may_end(violation)
            if why is None:
                raise
            self._mark(why)
            self._crashed(power_cut=False)
        else:
            self._after_event(node)
            if self.stopping and node.can_close:
                self._close(node)

    def forget(self, accepted: AcceptedConnection) -> None:
        self._accepted.pop(accepted, None)

    def forget_link(self, link: PeerLink, socket: LinkSocket) -> None:
        if self._links.get(link) is socket:
            self.links_lost += 1
            del self._links[link]

    def break_links(self, *, noticed: bool = False) -> None:
        """The network breaks the links. If this side has `noticed` it first, bytes of a new connection may arrive
        before those of the old one."""
        for socket in list(self._links.values()):
            if socket.connection is not None and not socket.connection.broken:
                self.world.marks["link broken"] += 1
                rng = self.world.rng
                socket.connection.break_(
                    by=Side.CLIENT if noticed or rng.random() < 0.5 else None, late=rng.random() < 0.7
                )

    def _after_event(self, node: SomeNode) -> None:
        carry_out(node, self)
        self.check(node)
        if self._moment is not None and self._moment[0](node):
            (_, do), self._moment = self._moment, None
            self.world.after(0, do)

    # --- the effects of the node, as `carry_out` asks for them

    def flush(self, connection: AcceptedConnection) -> None:
        socket = self._accepted.get(connection)
        if socket is not None:
            socket.flush()

    def update_link(self, link: PeerLink) -> None:
        if link.wants_connection and link not in self._links:
            self._links[link] = LinkSocket(self, link)
            delay_ms = self._network.delay_ms(self.name, self.peers[link.peer].name)
            self.world.after(delay_ms, partial(self._dial, link, self._links[link]))
        elif link in self._links:
            self._links[link].flush()

    def run_job(self, job: Job) -> None:
        delay_ms = self.world.rng.randint(0, DISK_DELAY_MS_MAX)
        self.world.after(delay_ms, partial(self.report, self.incarnation, partial(self._do_job, job)))

    def call_next_turn(self) -> None:
        if not self._turn_called:
            self._turn_called = True
            self.world.after(0, partial(self._next_turn, self.incarnation))

    def wake_at(self, due_ms: int) -> None:
        due_ms = min(due_ms - self._boot_ms, self.world.time_ms + TICK_MS_MAX)
        if self._timer_due_ms is None or due_ms < self._timer_due_ms:
            self._timer += 1
            self._timer_due_ms = due_ms
            self.world.after(due_ms - self.world.time_ms, partial(self._tick, self.incarnation, self._timer))

    def _next_turn(self, incarnation: int) -> None:
        if incarnation == self.incarnation:
            self._turn_called = False
            self.report(incarnation, lambda node, now: node.next_turn(now))

    def _dial(self, link: PeerLink, socket: LinkSocket) -> None:
        if self._links.get(link) is not socket:
            return
        peer = self.peers[link.peer]
        if not self._network.can_connect(self.name, peer.name):
            self.world.after(DIAL_MS_MAX, partial(socket.lost, "timed out"))
            return
        connection = peer.accept(socket, client_host=self.name, internal=True)
        if connection is None:
            delay_ms = self._network.delay_ms(peer.name, self.name)
            self.world.after(delay_ms, partial(socket.lost, "refused"))
        else:
            socket.connected(connection)

    def _tick(self, incarnation: int, timer: int) -> None:
        if incarnation != self.incarnation or timer != self._timer:
            return
        self._timer_due_ms = None
        self.report(incarnation, self._ticked, what="tick")

    def _ticked(self, node: SomeNode, now: Now) -> None:
        node.tick(now)

    def _do_job(self, job: Job, node: SomeNode, now: Now) -> None:
        """Run the job in one step, so that it is never seen half-done; only its late end is simulated."""
        self.world.marks["job done"] += 1
        failure: Exception | None = None
        try:
            job.run()
        except Killed:
            raise
        except Exception as error:
            failure = error
        node.job_ended(job, failure, now)

    # --- ends

    def _go_on(self, incarnation: int) -> None:
        if incarnation != self.incarnation or not self._hangs:
            return
        self._hangs = False
        self.changed_ms = self.world.time_ms
        deferred, self._deferred = self._deferred, []
        sockets: list[AcceptedSocket | LinkSocket] = [*self._accepted.values(), *self._links.values()]
        for socket in sockets:
            socket.hand_in()
        for incarnation_then, event, what in deferred:
            self.report(incarnation_then, event, what=what)

    def _crashed(self, *, power_cut: bool | None = None) -> None:
        cut = self._power_cuts and self.world.rng.random() < 0.7 if power_cut is None else power_cut
        self.node = None
        self._ended_uncleanly = True
        if cut:
            self._mark("lost its power")
            self._unplug()
        else:
            self._hang_up()
        self.disk.crash(power_cut=cut)
        self.disk_failed = False
        self._come_back()

    def _come_back(self) -> None:
        self._hangs = self.stopping = False
        self.changed_ms = self.world.time_ms
        self._deferred.clear()
        self._timer_due_ms = None
        self._turn_called = False
        longest = self.world.rng.choice(RESTART_MS)
        self.world.after(self.world.rng.randint(0, longest), self.start)

    def _hang_up(self) -> None:
        """The process has ended, and the operating system closes its connections."""
        for connection, side in self._open():
            connection.break_(by=side, late=self.world.rng.random() < 0.5)

    def _unplug(self) -> None:
        for connection, side in self._open():
            connection.lose(side)
            self._unplugged.append(connection)

    def _open(self) -> list[tuple[Connection, Side]]:
        accepted = [(socket.connection, Side.SERVER) for socket in self._accepted.values()]
        links = [(socket.connection, Side.CLIENT) for socket in self._links.values() if socket.connection is not None]
        self._accepted.clear()
        self._links.clear()
        return [*accepted, *links]

    def _mark(self, what: str) -> None:
        self.world.marks[f"{self.name.partition('-')[0]} {what}"] += 1
