"""The machine of one controller. Records that it considers committed are added to the ledger of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from raylog.controller.controller import Controller
from raylog.controller.handlers import broker_registration
from raylog.controller.quorum.quorum import Role
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId
from raylog.metadata.voters import voter_name
from raylog.protocol import registry
from raylog.transport.endpoints import Endpoint
from raylog.transport.exchange import Exchange
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import NodeIdentity
from tests.sim.ledger import DurableLog, MetadataLedger, VoterWatch
from tests.sim.network import Network
from tests.sim.node_host import Event, NodeHost
from tests.support.sim_disk import SimDisk
from tests.support.small_segments import with_small_segments

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZXI"
SECRET = b"s" * 32
LOG_PATH = "/controller"


class ControllerHost(NodeHost[Controller]):
    """It may lose power at any time: acknowledged records are on the disks of a majority."""

    gives_up = True

    def __init__(
        self,
        network: Network,
        config: Mapping[str, str],
        ledger: MetadataLedger,
        voter_id: BrokerId,
        voters: Sequence[BrokerId],
        known: Sequence[BrokerId],
    ) -> None:
        super().__init__(network, voter_name(voter_id), power_cuts=True)
        self.ledger = ledger
        self.durable = DurableLog(self.disk, LOG_PATH)
        self.voter_id = voter_id
        self._voters = voters
        self._known = known
        self._configs = with_small_segments(config)
        self.listeners = [listener for listener in plan_listeners(self._configs) if listener.internal]
        self._has_past = False
        self.directory_id: UUID | None = None
        """Of its metadata log, as far as it is known."""
        self._watch = VoterWatch(ledger, self.durable)

    def make(self, now: Now) -> Controller:
        self.durable.forget()
        self._watch = VoterWatch(self.ledger, self.durable)
        controller = Controller(
            NodeIdentity(self.voter_id, CLUSTER_ID, self.world.new_id(), SECRET),
            self._configs,
            self.disk,
            LOG_PATH,
            may_be_new=not self._has_past,
            new_id=self.world.new_id,
            new_nonce=self.world.rng.randbytes,
            now=now,
            voters=self._voters,
            known=self._known,
        )
        self._has_past = True
        self.directory_id = controller.directory_id
        controller.handlers = {**controller.handlers, registry.BROKER_REGISTRATION: self._registration}
        return controller

    def lose_disk(self) -> None:
        """The machine fails with its disk, and comes back with an empty one: as an observer with another directory."""
        self.kill(power_cut=True)
        self.world.marks["controller lost its disk"] += 1
        self.disk = SimDisk(self.world.rng)
        self.durable = DurableLog(self.disk, LOG_PATH)
        self._has_past, self._voters, self.directory_id = False, (), UUID(int=0)
        self.ledger.disk_lost(self.voter_id)

    def endpoints(self) -> dict[str, Endpoint]:
        return {listener.name: Endpoint(self.name, 1) for listener in self.listeners}

    def report(self, incarnation: int, event: Event[Controller], *, what: str = "") -> None:
        """As every host, and mark notable events."""
        node = self.node
        before = set() if node is None else node.image.alive
        snapshots = 0 if node is None else len(node.metadata_log.snapshots)
        epoch = None if node is None or not node.is_active else node.leader_epoch
        committed, decided = (0, 0) if node is None else (node.high_watermark, node.next_offset)
        campaigned = node is not None and node.quorum.role is Role.CANDIDATE
        super().report(incarnation, event, what=what)
        if node is None or self.node is not node:
            return
        if epoch is not None and not node.is_active:
            self.world.marks["controller deposed"] += 1
            self.world.marks["controller deposed with decisions not committed"] += decided > committed
        self.world.marks["election lost"] += campaigned and not (node.is_active or node.quorum.role is Role.CANDIDATE)
        self.world.marks["snapshot taken or installed"] += len(node.metadata_log.snapshots) > snapshots
        if epoch is not None and node.is_active and len(node.image.alive) < len(before):
            self.world.marks[f"broker fenced by {what or 'a request'}"] += 1

    def _registration(self, controller: Controller, exchange: Exchange, request: Any) -> Any:
        answer = broker_registration.handle(controller, exchange, request)
        refused = answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        self.world.marks["registration refused while another incarnation was alive"] += refused
        return answer

    def check(self, node: Controller) -> None:
        self._watch.check(node)
