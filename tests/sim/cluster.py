"""A simulated cluster: controllers and brokers, each on a machine of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from raylog.broker.broker import Broker, peer_name
from raylog.config.topic import topic_configs
from raylog.controller.controller import Controller
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.logstore.checkpoint import PARTITION_METADATA_FILE, decode_partition_metadata
from raylog.logstore.log import Log
from raylog.logstore.settings import log_settings
from raylog.metadata.voters import voter_ids
from raylog.protocol.records.reader import read_batches
from tests.sim.broker_host import BrokerHost
from tests.sim.controller_host import ControllerHost
from tests.sim.group_ledger import read_group_records
from tests.sim.ledger import MetadataLedger
from tests.sim.network import RETRANSMIT_MS, Network
from tests.sim.node_host import NodeHost
from tests.sim.replica_watch import ReplicaWatch
from tests.sim.world import World

READ_BYTES = 1 << 20
LOOK_MS = 100
NOTICE_MS = 500
"""The time that the controller may need in addition to the session timeout."""


class SimCluster:
    """The hosts of a cluster, and checks across all of them."""

    def __init__(
        self,
        world: World,
        config: Mapping[str, str],
        *,
        broker_count: int,
        controller_count: int,
        power_cuts: bool,
        coordinators: Sequence[int] = (),
        first_id: int = 0,
        joining: int = 0,
    ) -> None:
        """`coordinators` are the ids of those that are nodes of their own. They follow the brokers in `brokers`, whose
        ids begin with `first_id`. `joining` is the number of controllers that begin as observers."""
        self.world = world
        self.ledger = MetadataLedger()
        self.network = Network(world)
        voters = voter_ids(controller_count)
        known = voter_ids(controller_count + joining)
        self.controllers = [
            ControllerHost(self.network, config, self.ledger, each, voters if each in voters else (), known)
            for each in known
        ]
        self.brokers = [
            BrokerHost(self.network, config, self.ledger, BrokerId(number), voters, power_cuts=power_cuts)
            for number in (*range(first_id, first_id + broker_count), *coordinators)
        ]
        self._by_id = {host.broker_id: host for host in self.brokers}
        controllers = {host.name: host for host in self.controllers}
        for controller in self.controllers:
            controller.peers = controllers
        for broker in self.brokers:
            broker.peers = {**controllers, **{peer_name(other.broker_id): other for other in self.brokers}}
        self._decided = self.controllers[0]
        self._active_before: Controller | None = None
        self._active_since_ms = 0
        by_voter = dict(zip(known, self.controllers, strict=True))
        self.ledger.durable_of = lambda voter: by_voter[voter].durable
        self.replica_watch = ReplicaWatch(world, self.ledger, min_insync_replicas=int(config["min.insync.replicas"]))
        for broker in self.brokers:
            broker.replica_watch = self.replica_watch
        self.ledger.on_unfenced = self._check_unfenced
        self.ledger.on_mark = self._count
        self._noticed_ms = int(config["broker.session.timeout.ms"]) + NOTICE_MS
        self.hosts: list[NodeHost[Any]] = [*self.controllers, *self.brokers]

    def broker(self, broker_id: int) -> BrokerHost:
        return self._by_id[BrokerId(broker_id)]

    @property
    def active(self) -> Controller | None:
        """The controller that leads in the highest epoch and has committed a record of it."""
        nodes = [
            host.node for host in self.controllers if host.node is not None and host.node.quorum.has_committed_in_epoch
        ]
        return max(nodes, key=lambda node: node.leader_epoch, default=None)

    @property
    def controller(self) -> ControllerHost:
        """The host of the active controller, or of the last one."""
        active = self.active
        [host] = [host for host in self.controllers if host.node is active] if active is not None else [self._decided]
        self._decided = host
        return host

    def _count(self, mark: str) -> None:
        self.world.marks[mark] += 1

    def start(self) -> None:
        """Start the hosts in random order and at random times."""
        for host in self.hosts:
            self.world.after(self.world.rng.randint(0, 100), host.start)
        self._look_for_the_dead()

    def restart(self) -> None:
        """Restart all nodes cleanly, in random order. The caller waits for `serves`."""
        for host in self.world.rng.sample(self.hosts, len(self.hosts)):
            host.stop_cleanly()

    def cut(self, broker: NodeHost[Any], other: NodeHost[Any], *, hears: bool = False, heard: bool = False) -> None:
        """Cut both directions, except towards `broker` with `hears`, and from `broker` with `heard`."""
        kinds = sorted("a controller" if host in self.controllers else "a broker" for host in (broker, other))
        self.world.marks[f"{kinds[0]} cut from {kinds[1]}"] += 1
        self.world.marks["cut in one direction"] += hears or heard
        if not heard:
            self.network.cut(broker.name, other.name)
        if not hears:
            self.network.cut(other.name, broker.name)

    def heal(self, broker: NodeHost[Any], other: NodeHost[Any], *, hears: bool = False, heard: bool = False) -> None:
        """Heal a cut that was made with the same arguments."""
        broker.changed_ms = self.world.time_ms + max(RETRANSMIT_MS)  # messages that it sent before may still arrive
        if not heard:
            self.network.heal(broker.name, other.name)
        if not hears:
            self.network.heal(other.name, broker.name)

    def slow(self, broker: NodeHost[Any], other: NodeHost[Any], delay_ms_max: int | None) -> None:
        """Set the largest delay of bytes between the two; None restores the usual delay."""
        broker.changed_ms = self.world.time_ms
        self.world.marks["link slow"] += delay_ms_max is not None
        self.network.slow(broker.name, other.name, delay_ms_max)

    def serves(self) -> bool:
        """Whether every broker is running and unfenced, every partition has a leader and is open and known to all, and
        all of its replicas are in sync and equal."""
        ledger = self.ledger
        active = self.active
        if active is None or not active.all_committed:
            return False
        for controller in self.controllers:
            node = controller.node
            if node is None or (node.quorum.leader_id, node.high_watermark) != (
                active.quorum.node_id,
                active.high_watermark,
            ):
                return False
        if any(host.stopping for host in self.hosts):
            return False
        image = ledger.image
        if len(image.alive) < len(self.brokers):
            return False
        for host in self.brokers:
            broker = host.node
            if broker is None or broker.follower.next_offset != len(ledger.records):
                return False
            for tp, _, shown in image.partitions_on(host.broker_id):
                if shown.is_reassigning:
                    return False
                if shown.leader == NO_BROKER_ID or tp not in broker.partitions or set(shown.isr) != set(shown.replicas):
                    return False
                leader = self._by_id[shown.leader].node
                if leader is None or tp not in leader.partitions:
                    return False
                end_offset = leader.partitions[tp].log.log_end_offset
                mine = broker.partitions[tp]
                if (mine.log.log_end_offset, mine.high_watermark) != (end_offset, end_offset):
                    return False
        return True

    def check(self) -> None:
        """Check images, logs and coordinators. Requires `serves`."""
        ledger = self.ledger
        for controller in self.controllers:
            assert controller.node is not None
            assert vars(controller.node.image) == vars(ledger.image)
        for host in self.brokers:
            broker = host.node
            assert broker is not None
            due = {tp: topic_id for tp, topic_id, _ in ledger.image.partitions_on(host.broker_id)}
            assert {tp: partition.topic_id for tp, partition in broker.partitions.items()} == due
            assert self._directories(host) == due, f"{host.name} has directories of partitions that it should not hold"
            for tp, partition in broker.partitions.items():
                configs = topic_configs(ledger.image.topics[tp.topic].configs, broker.configs)
                assert partition.log.settings == log_settings(configs), f"{tp} is not configured as it should be"
                latest = partition.log.leader_epochs.latest
                if latest >= 0:
                    given_to = ledger.leaders.get((partition.topic_id, tp.partition, latest))
                    assert given_to is not None, f"{tp} was written under an epoch without an elected leader"
                if tp.topic == OFFSETS_TOPIC and partition.is_leader:
                    self._check_coordinators(tp, partition.topic_id, _batches(partition.log))
                if not partition.is_leader:
                    leader = self._by_id[partition.leader].node
                    assert leader is not None
                    assert _batches(partition.log) == _batches(leader.partitions[tp].log), f"{tp}: replicas differ"

    def _check_coordinators(self, tp: TopicPartition, topic_id: UUID, batches: bytes) -> None:
        """Each record has the epoch of an elected leader, and no record of an old leader follows one of a newer."""
        before = 0
        for leader_epoch in (epoch for epoch, _ in read_group_records(batches)):
            given_to = self.ledger.leaders.get((topic_id, tp.partition, LeaderEpoch(leader_epoch)))
            assert given_to is not None, f"{tp}: a coordinator wrote under epoch {leader_epoch}, and was not elected"
            assert leader_epoch >= before, f"{tp}: epoch {leader_epoch} lies behind {before}"
            before = leader_epoch

    def _look_for_the_dead(self) -> None:
        """A failed broker leads no partition once an undisturbed controller can have detected the failure."""
        active = self.active
        if active is not self._active_before:
            self._active_before, self._active_since_ms = active, self.world.time_ms
        names = [controller.name for controller in self.controllers]
        apart = any(self.network.is_disturbed(one, other) for one in names for other in names)
        for host in self.brokers:
            since_ms = max(
                host.changed_ms, self._active_since_ms, *(controller.changed_ms for controller in self.controllers)
            )
            disturbed = active is None or any(controller.disturbed for controller in self.controllers) or apart
            noticed = not disturbed and self.world.time_ms - since_ms > self._noticed_ms
            slow = any(self.network.is_slow(host.name, controller.name) for controller in self.controllers)
            if host.node is None and noticed and not slow:
                assert host.broker_id not in self.ledger.image.alive, f"{host.name} is dead, and leads"
        self.world.after(LOOK_MS, self._look_for_the_dead)

    def _check_unfenced(self, broker_id: BrokerId, broker_epoch: int) -> None:
        broker = self._by_id[broker_id].node
        if broker is not None and broker.lifecycle.broker_epoch == broker_epoch:
            assert broker.follower.next_offset > broker_epoch, "unfenced before it knew of its own registration"

    def values(self, tp: TopicPartition) -> list[bytes | None]:
        """The values of all records of the partition, from offset 0 on."""
        return _values(self.leader(tp)[1].partitions[tp].log)

    def batches(self, tp: TopicPartition) -> bytes:
        """The same, byte by byte."""
        return _batches(self.leader(tp)[1].partitions[tp].log)

    def leader(self, tp: TopicPartition) -> tuple[BrokerHost, Broker]:
        for host in self.brokers:
            if host.node is not None and tp in host.node.partitions and host.node.partitions[tp].is_leader:
                return host, host.node
        raise AssertionError(f"{tp} is nowhere")

    @staticmethod
    def _directories(host: BrokerHost) -> dict[TopicPartition, object]:
        """The topic id of every partition's directory on the host's disk."""
        found: dict[TopicPartition, object] = {}
        for path in (f"{log_path}/{name}" for log_path in host.log_paths for name in host.disk.listdir(log_path)):
            name = path.rpartition("/")[2]
            if host.disk.is_dir(path) and not name.endswith("-delete"):
                topic, _, number = name.rpartition("-")
                file = f"{path}/{PARTITION_METADATA_FILE}"
                known = host.disk.exists(file)
                topic_id = decode_partition_metadata(host.disk.read_file(file)) if known else ZERO_TOPIC_ID
                found[TopicPartition(topic, int(number))] = topic_id
        return found


def _batches(log: Log) -> bytes:
    """The bytes of the log. All replicas begin at the same offset once retention has been applied."""
    position, batches = log.log_start_offset, b""
    while position < log.log_end_offset:
        piece = log.read(Offset(position), max_bytes=READ_BYTES, upto=log.log_end_offset)
        batches += piece.records
        position = piece.next_offset
    return batches


def _values(log: Log) -> list[bytes | None]:
    assert log.log_start_offset == 0
    position, values = 0, []
    while position < log.log_end_offset:
        piece = log.read(Offset(position), max_bytes=READ_BYTES, upto=log.log_end_offset)
        values += [record.value for record in read_batches(piece.records, from_offset=position)]
        position = piece.next_offset
    return values
