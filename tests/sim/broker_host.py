"""The machine of a broker. After each event its image is compared with the committed metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.broker.broker import Broker
from raylog.config.log import log_dir_settings
from raylog.core.clock import Now
from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import NodeIdentity
from tests.sim.controller_host import CLUSTER_ID, SECRET
from tests.sim.ledger import ImageWatch, MetadataLedger
from tests.sim.network import Network
from tests.sim.node_host import NodeHost
from tests.sim.replica_watch import ReplicaWatch
from tests.support.small_segments import with_small_segments

PORT = 9092


KEPT_SHARE = 0.2
"""The share of power cuts before which all data was written back."""


class BrokerHost(NodeHost[Broker]):
    """With `power_cuts` the configuration must make every batch durable before it is acknowledged.

    With `loses_unsynced` it need not: then replication must restore the records that a machine loses, as it guarantees
    if other in-sync replicas have them. So records that no other replica has are kept, and nothing is lost before the
    controller has committed that the broker is fenced: until then a second failure would exceed the guarantee.
    """

    def __init__(
        self,
        network: Network,
        config: Mapping[str, str],
        ledger: MetadataLedger,
        broker_id: BrokerId,
        voters: Sequence[BrokerId],
        *,
        power_cuts: bool,
    ) -> None:
        super().__init__(network, f"broker-{broker_id}", power_cuts=power_cuts)
        self.broker_id = broker_id
        self.loses_unsynced = False
        self.log_path = f"/{self.name}"
        self._ledger = ledger
        self._voters = voters
        self._configs = with_small_segments({"listeners": f"PLAINTEXT://{self.name}:{PORT}", **config})
        self.log_paths = log_dir_settings(self._configs).paths or (self.log_path,)
        if len(self.log_paths) > 1:
            for path in self.log_paths:
                self.disk.mkdir(path)
        self.listeners = plan_listeners(self._configs)
        self._watch = ImageWatch(self._ledger)
        self.replica_watch: ReplicaWatch | None = None

    @property
    def has_offline_log(self) -> bool:
        logs = self.node.table.log_dirs.logs() if self.node is not None else ()
        return any(log.offline_reason is not None for _, log in logs)

    def make(self, now: Now) -> Broker:
        self._watch = ImageWatch(self._ledger)
        return Broker(
            NodeIdentity(self.broker_id, CLUSTER_ID, self.world.new_id(), SECRET),
            self._configs,
            self.disk,
            self.log_paths,
            new_id=self.world.new_id,
            new_nonce=self.world.rng.randbytes,
            now=now,
            voters=self._voters,
        )

    def may_end(self, violation: InvariantViolation) -> str | None:
        needs_snapshot = "the controller no longer has offset" in str(violation)
        return "slept through two snapshots" if needs_snapshot else super().may_end(violation)

    def settle_disk(self) -> None:
        image = self._ledger.image
        broker = image.brokers.get(self.broker_id)
        if not self.loses_unsynced or broker is None or not broker.fenced or self.world.rng.random() < KEPT_SHARE:
            return
        self.disk.arm(kill_at_op=None)
        for tp, _, shown in image.partitions_on(self.broker_id):
            path = f"{self.log_path}/{tp}"
            if shown.isr == (self.broker_id,) and self.disk.exists(path):
                for name in self.disk.listdir(path):
                    self.disk.fsync_path(f"{path}/{name}")
                self.disk.fsync_dir(path)
        self.world.marks["broker lost what it had not synced"] += 1
        self.disk.crash(power_cut=True)

    def endpoints(self) -> dict[str, Endpoint]:
        return {listener.name: Endpoint(self.name, PORT) for listener in self.listeners}

    def check(self, node: Broker) -> None:
        self._watch.check(node)
        if self.replica_watch is not None:
            self.replica_watch.after_event(node, self.broker_id, self.incarnation)
