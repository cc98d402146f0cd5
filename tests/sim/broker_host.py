"""The machine a simulated broker runs on: the production `Broker`, driven as its real shell drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from raylog.broker.broker import Broker, BrokerIdentity
from raylog.broker.config import broker_configs
from raylog.broker.listeners import Endpoint, plan_listeners
from raylog.broker.partitions import DiskWork
from raylog.broker.request import ClientConnection
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from tests.sim.network import End, Link
from tests.sim.world import World
from tests.support.sim_disk import Killed, SimDisk

LOG_PATH = "/broker-0"
UNWRITTEN_BYTES_MAX = 64 << 10
RESTART_DELAY_MS_MAX = 400
DISK_DELAY_MS_MAX = 300


class BrokerHost:
    """Starts the broker, kills it, starts it again on the same disk."""

    def __init__(self, world: World, config: Mapping[str, str], *, power_cuts: bool) -> None:
        self.world = world
        self.disk = SimDisk(world.rng)
        self.broker: Broker | None = None
        self._config = dict(config)
        self._power_cuts = power_cuts
        self._ends: dict[ClientConnection, _ServerEnd] = {}
        self._incarnation = 0
        self.trouble = True
        """While this holds, a start may be killed as well."""

    def start(self) -> None:
        if self.broker is not None:
            return
        configs = broker_configs({"listeners": "PLAINTEXT://127.0.0.1:9092", **self._config})
        listeners = plan_listeners(configs)
        self._incarnation += 1
        identity = BrokerIdentity(BrokerId(0), "c2ltdWxhdGVkLWNsdXN0ZXI", self._new_id(), b"s" * 32)
        now = self.world.now()
        if self.trouble and self._incarnation > 1 and self.world.rng.random() < 0.25:
            self.disk.arm(kill_at_op=self.world.rng.randint(1, 30))
        try:
            broker = Broker(
                identity,
                configs,
                self.disk,
                LOG_PATH,
                new_id=self._new_id,
                new_nonce=self.world.rng.randbytes,
                now=now,
            )
            endpoints = {listener.name: Endpoint("127.0.0.1", 9092) for listener in listeners}
            broker.serve(endpoints, client_listener="PLAINTEXT", now=now)
        except Killed:
            self.world.marks["killed while it recovered"] += 1
            self._after_crash()
            return
        except KafkaError:
            self.world.marks["start refused by the disk"] += 1
            self._after_crash(power_cut=False)
            return
        self.broker = broker
        self._listener = listeners[0]
        self._plan_tick(self._incarnation)

    def stop_cleanly(self) -> None:
        if self.broker is None:
            return
        broker, self.broker = self.broker, None
        try:
            broker.close(self.world.now())
        except KafkaError:
            self.world.marks["stop spoilt by the disk"] += 1
            self._hang_up()
            self._after_crash(power_cut=False)
            return
        except Killed:
            self.world.marks["killed while it stopped"] += 1
            self._hang_up()
            self._after_crash()
            return
        self.world.marks["clean stop"] += 1
        self._hang_up()
        self.world.after(self.world.rng.randint(0, RESTART_DELAY_MS_MAX), self.start)

    def kill(self) -> None:
        """kill -9, or the power goes: whatever the broker was about to do, it does not."""
        if self.broker is None:
            return
        self.world.marks["killed"] += 1
        self.broker = None
        self._hang_up()
        self._after_crash()

    def connect(self, client: End) -> Link | None:
        """A new connection, or None where nobody listens."""
        if self.broker is None:
            return None
        connection = self.broker.connection_opened(self._listener, "127.0.0.1", self.world.now())
        if connection is None:
            return None
        link = Link(self.world, client)
        end = _ServerEnd(self, connection, link, self._incarnation)
        link.attach(end)
        self._ends[connection] = end
        return link

    def report(self, incarnation: int, event: Callable[[Broker], None]) -> None:
        """Tell the broker something and carry out what follows, unless that broker is no more."""
        if self.broker is None or incarnation != self._incarnation:
            return
        try:
            event(self.broker)
        except Killed:
            self.world.marks["killed within a write"] += 1
            self.broker = None
            self._hang_up()
            self._after_crash()
            return
        for connection in self.broker.take_touched():
            if connection in self._ends:
                held_back = connection.held_back
                self._ends[connection].flush()
                if held_back and not connection.muted:
                    self.world.after(
                        0, partial(self.report, incarnation, partial(_output_taken, connection, self.world))
                    )

    def forget(self, connection: ClientConnection) -> None:
        self._ends.pop(connection, None)

    def _after_crash(self, *, power_cut: bool | None = None) -> None:
        cut = self._power_cuts and self.world.rng.random() < 0.7 if power_cut is None else power_cut
        self.world.marks["power cut"] += cut
        self.disk.crash(power_cut=cut)
        self.world.after(self.world.rng.randint(0, RESTART_DELAY_MS_MAX), self.start)

    def _hang_up(self) -> None:
        for end in list(self._ends.values()):
            end.link.break_()
        self._ends.clear()

    def _plan_tick(self, incarnation: int) -> None:
        if self.broker is None or incarnation != self._incarnation:
            return
        delay = self.broker.next_tick_ms() - self.world.now().monotonic_ms
        self.world.after(min(max(delay, 1), 50), lambda: self._tick(incarnation))

    def _tick(self, incarnation: int) -> None:
        self.report(incarnation, lambda broker: broker.tick(self.world.now()))
        if self.broker is not None and incarnation == self._incarnation:
            for work in self.broker.take_disk_work():
                delay = self.world.rng.randint(0, DISK_DELAY_MS_MAX)
                self.world.after(delay, partial(self.report, incarnation, partial(self._do_disk_work, work)))
        self._plan_tick(incarnation)

    def _do_disk_work(self, work: DiskWork, broker: Broker) -> None:
        """Done in one step here, so the disk's thread is never seen half-way; that it comes late is what matters."""
        self.world.marks["synced in the background"] += 1
        failure: OSError | None = None
        try:
            work.run()
        except OSError as error:
            failure = error
        work.done(failure)

    def _new_id(self) -> UUID:
        return UUID(int=self.world.rng.getrandbits(128) | 1 << 127)


class _ServerEnd:
    """The broker's end of a link: what the real shell's protocol class is."""

    def __init__(self, host: BrokerHost, connection: ClientConnection, link: Link, incarnation: int) -> None:
        self.link = link
        self._host = host
        self._connection = connection
        self._incarnation = incarnation
        self._held = bytearray()
        """What the peer has sent and the broker does not want yet: the socket's own buffer."""
        self._writable = True
        link.to_client.on_drained = self._drained

    def bytes_arrived(self, data: bytes) -> None:
        self._held += data
        self._hand_in()

    def connection_lost(self) -> None:
        self._host.forget(self._connection)
        self._host.report(self._incarnation, lambda broker: broker.connection_closed(self._connection))

    def flush(self) -> None:
        output = b"".join(self._connection.take_output())
        self.link.to_client.send(output)
        if self._connection.closing:
            self._host.world.marks["closed by the broker"] += 1
            self._host.world.after(20, self.link.break_)
            return
        if self._writable and self.link.to_client.unread_bytes > UNWRITTEN_BYTES_MAX:
            self._writable = False
            self._host.world.marks["muted"] += 1
            self._connection.set_writable(writable=False)
        self._host.world.after(0, self._hand_in)

    def _hand_in(self) -> None:
        while self._held and self._connection.wants_bytes and not self.link.broken:
            room = self._connection.receive_buffer()
            count = min(len(room), len(self._held))
            room[:count] = self._held[:count]
            del self._held[:count]
            now = self._host.world.now()
            self._host.report(self._incarnation, partial(_received, connection=self._connection, count=count, now=now))

    def _drained(self) -> None:
        if not self._writable:
            self._writable = True
            now = self._host.world.now()
            self._host.report(
                self._incarnation, lambda broker: broker.writable_changed(self._connection, now, writable=True)
            )


def _output_taken(connection: ClientConnection, world: World, broker: Broker) -> None:
    broker.output_taken(connection, world.now())


def _received(broker: Broker, *, connection: ClientConnection, count: int, now: Now) -> None:
    broker.bytes_received(connection, count, now)
