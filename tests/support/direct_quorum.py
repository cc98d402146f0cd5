"""Production controllers without sockets: messages between them are delivered when the test calls `settle`."""

from __future__ import annotations

import random
from uuid import UUID

from raylog.config.table import broker_configs
from raylog.controller.controller import Controller
from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.records import TopicCreated
from raylog.metadata.voters import FIRST_VOTER_ID, voter_ids, voter_named
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_controller_listeners
from raylog.transport.node import Node, NodeIdentity
from tests.support.direct_link import DirectLinks
from tests.support.sim_disk import SimDisk

WALL_START_MS = 1_700_000_000_000
SECRET = b"s" * 32
CLUSTER_ID = "ZGlyZWN0LXF1b3J1bS10ZXN0"
LOG_PATH = "/controller"


class DirectQuorum:
    """Three voters, by number; each with its own disk, all with one clock. Further controllers can join."""

    def __init__(self, config: dict[str, str] | None = None, *, count: int = 3, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.configs = broker_configs(config or {})
        planned = plan_controller_listeners(self.configs)
        self.client_listener, self.listener = planned[0], planned[-1]
        """The former is the latter too, if controllers have no listener for clients."""
        self.voters = voter_ids(count)
        self.disks = [SimDisk(self.rng) for _ in self.voters]
        self.controllers: list[Controller | None] = [None] * count
        self.links: list[DirectLinks | None] = [None] * count
        self.has_past = [False] * count
        self.joined: set[int] = set()
        """Those that began as observers."""
        self.clock_ms = 1000
        self.cut_off: set[int] = set()
        """Voters that are partitioned from all others, without any side noticing."""

    # --- nodes

    def start(self, number: int, *, settle: bool = True) -> Controller:
        controller = Controller(
            NodeIdentity(self.id_of(number), CLUSTER_ID, self.new_id(), SECRET),
            self.configs,
            self.disks[number],
            LOG_PATH,
            may_be_new=not self.has_past[number],
            new_id=self.new_id,
            new_nonce=self.rng.randbytes,
            now=self.now(),
            voters=() if number in self.joined else self.voters,
            known=[self.id_of(each) for each in range(len(self.disks))],
        )
        controller.endpoints = {"CONTROLLER": Endpoint(f"host-{number}", 9093)}
        self.has_past[number] = True
        self.controllers[number] = controller
        self.links[number] = DirectLinks(controller, self.listener, lambda peer: self._find(number, peer))
        if settle:
            self.settle()
        return controller

    def join(self) -> int:
        """Start one more controller, as an observer with an empty disk; its number."""
        number = len(self.disks)
        self.disks.append(SimDisk(self.rng))
        self.controllers.append(None)
        self.links.append(None)
        self.has_past.append(False)
        self.joined.add(number)
        self.start(number)
        return number

    def replace_disk(self, number: int) -> None:
        """Kill the controller, if it runs, and start it with an empty disk, as an observer."""
        if self.controllers[number] is not None:
            self.kill(number)
        self.disks[number] = SimDisk(self.rng)
        self.has_past[number] = False
        self.joined.add(number)
        self.start(number)

    def id_of(self, number: int) -> BrokerId:
        return BrokerId(FIRST_VOTER_ID + number)

    def start_all(self) -> Controller:
        """Start all controllers, and return the elected one."""
        for number in range(len(self.voters)):
            self.start(number)
        self.pass_time(3000)
        return self.active

    def kill(self, number: int, *, power_cut: bool = True) -> None:
        """Kill a controller. All connections to it break."""
        gone = self.controllers[number]
        self.controllers[number] = None
        self.disks[number].crash(power_cut=power_cut)
        links, self.links[number] = self.links[number], None
        assert links is not None
        links.cut(self.now(), node_gone=True)
        for other in self.links:
            if other is not None:
                other.cut(self.now(), server_gone=True, server=gone)
        self.settle()

    @property
    def active(self) -> Controller:
        [active] = [each for each in self.running if each.is_active]
        return active

    @property
    def running(self) -> list[Controller]:
        return [each for each in self.controllers if each is not None]

    def number_of(self, controller: Controller) -> int:
        return self.controllers.index(controller)

    # --- events

    def now(self) -> Now:
        return Now(self.clock_ms, WALL_START_MS + self.clock_ms)

    def settle(self) -> None:
        while any(
            links is not None and number not in self.cut_off and links.carry(self.now())
            for number, links in enumerate(self.links)
        ):
            pass

    def pass_time(self, ms: int) -> None:
        end_ms = self.clock_ms + ms
        self.settle()
        while (due_ms := min((each.next_tick_ms() for each in self.running), default=end_ms + 1)) <= end_ms:
            self.clock_ms = max(self.clock_ms, due_ms)
            for controller in self.running:
                controller.tick(self.now())
            self.settle()
        self.clock_ms = end_ms

    def create_topic(self, controller: Controller, topic: str) -> None:
        """Create a topic on this controller; it is committed once the others have the records."""
        controller.decide(Outcome(None, [TopicCreated(topic, self.new_id())]), self.now())
        controller.run(self.now())

    def new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128) | 1 << 127)

    def _find(self, number: int, peer: str) -> Node | None:
        voter = voter_named(peer)
        assert voter is not None
        other = voter - FIRST_VOTER_ID
        return None if {number, other} & self.cut_off else self.controllers[other]
