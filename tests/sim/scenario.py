"""One run for one seed: clients work, faults are injected, and the final logs are checked against the guarantees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from raylog.broker import producer_ids as broker_producer_ids
from raylog.controller import brokers as controller_brokers
from raylog.controller import coordinators, voter
from raylog.core.ids import TopicPartition
from tests.sim.admin import Admin
from tests.sim.bursts import Bursts
from tests.sim.cluster import SimCluster
from tests.sim.consumer import Consumer
from tests.sim.groups import SimGroup
from tests.sim.producer import Producer
from tests.sim.producer_ids import GivenProducerIds
from tests.sim.quorum_bursts import QuorumBursts
from tests.sim.reassigner import Reassigner
from tests.sim.transactor import Transactor
from tests.sim.transfer_ledger import TransferLedger
from tests.sim.trouble import LONG_MS, USUAL_MS, end_trouble, plan_trouble
from tests.sim.vandal import Vandal
from tests.sim.visitor import Visitor
from tests.sim.world import World

TOPIC = "ledger"
TRANSFERS_TOPIC = "transfers"
PARTITIONS = 2
OFFSETS_PARTITIONS = 3
EVENTS_AIM = 2_000
"""With at least this many events during the faults a run counts as a test of replication."""
COORDINATORS = (2000, 2001, 3000)
"""In every seventh seed groups and transactions are coordinated by nodes of their own."""
QUIET_MS = 120_000
SERVED_MS_MAX = 30_000
"""How long after the last fault everything must be served again."""


def run(seed: int) -> Counter[str]:
    """The marks of the run. Raises AssertionError for a violated guarantee."""
    return run_world(seed).marks


def run_world(seed: int) -> World:
    """The world at the end of the run. Raises AssertionError for a violated guarantee."""
    world = World(seed)
    with _odd_sizes(world.rng):
        _Run(world).run()
    return world


class _Run:
    """The cluster of one run and all of its clients."""

    def __init__(self, world: World) -> None:
        rng = world.rng
        power_cuts = rng.random() < 0.5
        self.world = world
        broker_count = rng.choice((1, 2, 3, 3, 3, 3, 3, 4))
        self._trouble_ms = rng.randint(*LONG_MS) if rng.random() < 0.25 else USUAL_MS
        config = random_config(rng, broker_count=broker_count, power_cuts=power_cuts)
        controller_count = rng.choice((1, 3))
        batches = 60 * self._trouble_ms // USUAL_MS
        self.cluster = cluster = SimCluster(
            world,
            config,
            broker_count=broker_count,
            controller_count=controller_count,
            power_cuts=power_cuts,
            coordinators=COORDINATORS if world.seed % 7 == 6 else (),
        )
        loses_unsynced = not power_cuts and rng.random() < 0.7
        for host in cluster.brokers:
            host.loses_unsynced = loses_unsynced
        ledger = cluster.ledger
        given = GivenProducerIds(ledger, world.marks)
        cluster.start()
        if rng.random() < 0.7:  # otherwise the clients begin while the brokers are still starting
            assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX), "the cluster did not start"
        hosts = cluster.brokers
        self.producers = [
            Producer(
                world,
                hosts,
                TopicPartition(TOPIC, number),
                given,
                cluster.replica_watch,
                batch_count=rng.randint(batches // 3, batches),
                name=f"producer-{number}",
            )
            for number in range(PARTITIONS)
        ]
        self.consumers = [
            Consumer(
                world,
                hosts,
                TOPIC,
                PARTITIONS,
                cluster.replica_watch,
                offsets_count=OFFSETS_PARTITIONS,
                name=f"consumer-{number}",
            )
            for number in range(rng.randint(1, 2))
        ]
        self.groups = [
            SimGroup(world, cluster, TOPIC, PARTITIONS, OFFSETS_PARTITIONS, name=f"team-{number}")
            for number in range(rng.randint(1, 2) if rng.random() < 0.6 else 0)
        ]
        self.admins = [Admin(world, hosts, ledger, given, name=f"admin-{number}") for number in range(2)]
        self.reassigner = Reassigner(
            world, hosts, ledger, TOPIC, replicas_min=int(config["min.insync.replicas"]), name="reassigner"
        )
        if rng.random() < 0.4:
            self.reassigner.tasks_left = 0
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self._bursts = Bursts(cluster, config, partitions)
        self._quorum_bursts = QuorumBursts(cluster, config)
        self.visitor = Visitor(world, hosts, given, name="visitor")
        self.transfers = TransferLedger(TRANSFERS_TOPIC, PARTITIONS)
        self.transactors = []
        if world.seed % 3 == 1:
            same = rng.random() < 0.4
            self.transactors = [
                Transactor(
                    world,
                    hosts,
                    self.transfers,
                    transactional_id="shared" if same else f"own-{number}",
                    name=f"transactor-{number}",
                )
                for number in range(2)
            ]
        self.vandal = Vandal(world, cluster.hosts)

    def run(self) -> None:
        cluster, world = self.cluster, self.world
        busy = [*self.producers, *self.admins, self.reassigner, self.visitor, *self.transactors]
        members = [member for group in self.groups for member in group.members]
        clients = [*busy, *self.consumers, *members]
        break_connections = [client.break_connection for client in clients]
        plan_trouble(cluster, break_connections, self._bursts, self._quorum_bursts, trouble_ms=self._trouble_ms)
        events_before = world.events
        assert not world.run(until=lambda: False, limit_ms=self._trouble_ms)
        world.marks["run with 2,000 events in trouble"] += world.events - events_before >= EVENTS_AIM
        world.marks["events in trouble"] += world.events - events_before
        end_trouble(cluster)
        self.vandal.finished = True
        for group in self.groups:
            group.end_trouble()
        for transactor in self.transactors:
            transactor.end_trouble()
        for admin in self.admins:
            admin.tasks_left = 2
        if self.reassigner.tasks_left is None:
            self.reassigner.tasks_left = 1
        self.visitor.leave_after_one_more_tour()
        done = world.run(until=lambda: all(client.finished for client in busy), limit_ms=QUIET_MS)
        assert done, f"{[client.name for client in busy if not client.finished]} did not finish"
        assert world.run(until=self._all_read, limit_ms=QUIET_MS), "a consumer did not read all acknowledged records"
        for consumer in self.consumers:
            consumer.finished = True
        for group in self.groups:
            group.commit_no_more()
        assert world.run(until=self._at_rest, limit_ms=SERVED_MS_MAX), f"{self._not_at_rest()} after the faults ended"
        if world.marks["disk full"] or world.rng.random() < 0.2:
            cluster.restart()  # a start removes files that a full disk has left behind
            assert world.run(until=self._at_rest, limit_ms=SERVED_MS_MAX), f"{self._not_at_rest()} after a restart"
        self._check()

    def _at_rest(self) -> bool:
        return (
            all(group.is_stable() for group in self.groups)
            and self.cluster.serves()
            and all(group.is_agreed() for group in self.groups)
            and self.transfers.is_at_rest(self.cluster)
        )

    def _not_at_rest(self) -> str:
        unstable = [group.name for group in self.groups if not group.is_stable()]
        if unstable:
            return f"{unstable} are not stable"
        if not self.cluster.serves():
            return "some partitions have no leader"
        at_rest = self.transfers.is_at_rest(self.cluster)
        return "members and coordinator of a group disagree" if at_rest else "a transaction is not complete"

    def _all_read(self) -> bool:
        return all(
            len(consumer.seen[producer.tp]) >= len(producer.sent)
            for consumer in self.consumers
            for producer in self.producers
        )

    def _check(self) -> None:
        """Every record sent is in its log once and in order, each acknowledged one at its acknowledged offset."""
        self.cluster.check()
        self.reassigner.must_have_come_to_what_was_asked()
        for group in self.groups:
            group.check()
        self.transfers.check(self.cluster, self.world.marks)
        image = self.cluster.ledger.image
        for admin in self.admins:
            for topic in admin.topics:
                shown = image.topics_by_id.get(topic.topic_id)
                assert shown is not None, f"{topic.name} was created, but does not exist"
                assert len(shown.partitions) >= topic.partition_count, (
                    f"{topic.name} was grown, but has fewer partitions"
                )
                if topic.retention_ms is not None and not topic.retention_in_doubt:
                    assert shown.configs["retention.ms"] == topic.retention_ms, (
                        f"{topic.name} was configured, but lacks the configuration"
                    )
            for topic_id in admin.deleted_ids:
                assert topic_id in image.deleted_topics, f"{topic_id} was deleted, but exists"
        for producer in self.producers:
            values = self.cluster.values(producer.tp)
            assert values == producer.sent, f"{producer.tp}: the log does not contain what was sent, in order and once"
            for offset, value in producer.acknowledged.items():
                assert values[offset] == value, (
                    f"{producer.tp}: {value!r} was acknowledged at {offset}, but the log has another record there"
                )
            for consumer in self.consumers:
                for offset, seen in consumer.seen[producer.tp].items():
                    assert values[offset] == seen, (
                        f"{producer.tp}: {seen!r} was read at {offset}, but the log has another record there"
                    )
            self.world.marks["records acknowledged"] += len(producer.acknowledged)


def random_config(rng: random.Random, *, broker_count: int, power_cuts: bool) -> dict[str, str]:
    """The configuration of brokers and controllers for one run."""
    replicas = min(broker_count, 3) if rng.random() < 0.7 else rng.randint(1, broker_count)
    heartbeat_ms = rng.choice((50, 200, 1000))
    config = {
        "num.partitions": str(PARTITIONS),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(1 if rng.random() < 0.4 else rng.randint(1, replicas)),
        "replica.lag.time.max.ms": str(rng.choice((500, 2000, 10_000))),
        "replica.fetch.wait.max.ms": str(rng.choice((50, 500))),
        "replica.fetch.max.bytes": str(rng.choice((0, 0, 2000, 1 << 20))),
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((200, 5000))),
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.min.isr": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
        "group.min.session.timeout.ms": "100",
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 300))),
        "broker.heartbeat.interval.ms": str(heartbeat_ms),
        "controller.quorum.election.timeout.ms": str(rng.choice((100, 1000))),
        "controller.quorum.fetch.timeout.ms": str(rng.choice((300, 2000))),
        "controller.quorum.election.backoff.max.ms": str(rng.choice((50, 1000))),
        "metadata.log.max.record.bytes.between.snapshots": str(rng.choice((500, 5_000, 20 << 20))),
        "broker.session.timeout.ms": str(heartbeat_ms * rng.choice((3, 5))),
        "leader.imbalance.check.interval.seconds": str(rng.choice((1, 3, 300))),
        "log.segment.bytes": str(rng.choice((7_000, 10_000, 40_000))),
        "log.index.interval.bytes": str(rng.choice((0, 200, 4096))),
        "log.retention.ms": "-1",
        "log.retention.check.interval.ms": "10000",
        "message.max.bytes": "100000",
        "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
        "max.incremental.fetch.session.cache.slots": str(rng.choice((0, 1, 1000))),
        "compression.type": rng.choice(("producer", "producer", "zstd", "uncompressed")),
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice((300, 60_000))),
        "log.flush.start.offset.checkpoint.interval.ms": str(rng.choice((300, 60_000))),
    }
    if power_cuts:
        config["log.flush.interval.messages"] = "1"
    return config


@contextmanager
def _odd_sizes(rng: random.Random) -> Iterator[None]:
    """Reduce constants whose limits a run is too short to reach."""
    block, few_left = controller_brokers.PRODUCER_ID_BLOCK, broker_producer_ids.REFILL_THRESHOLD
    fetched_bytes, hold_ms = voter.FETCH_BYTES_MAX, coordinators.HOLD_MS
    coordinators.HOLD_MS = 300
    controller_brokers.PRODUCER_ID_BLOCK = rng.choice((1, 3, block))
    broker_producer_ids.REFILL_THRESHOLD = rng.choice((0, 1, few_left))
    voter.FETCH_BYTES_MAX = rng.choice((100, 100, fetched_bytes))
    try:
        yield
    finally:
        controller_brokers.PRODUCER_ID_BLOCK, broker_producer_ids.REFILL_THRESHOLD = block, few_left
        voter.FETCH_BYTES_MAX, coordinators.HOLD_MS = fetched_bytes, hold_ms
