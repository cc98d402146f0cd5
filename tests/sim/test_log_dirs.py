"""A failed log directory moves only its replicas, and replicas are moved between directories under load and kills.

The simulated brokers have three directories each. Nothing acknowledged is lost, and the invariants of replication hold
after every event.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from raylog.broker.broker import Broker
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.core.ids import NO_BROKER_ID, TopicPartition
from raylog.logstore import future_log
from tests.sim.broker_host import BrokerHost
from tests.sim.cluster import SimCluster
from tests.sim.producer import Producer
from tests.sim.producer_ids import GivenProducerIds
from tests.sim.world import World
from tests.support.forms import by_form

SEEDS = by_form(3, quick=1, long=300)
DIRS = ("/disk-0", "/disk-1", "/disk-2")
TOPIC = "ledger"
PARTITIONS = 6
BATCHES = 40
LOAD_MS = 4_000
NOTICED_MS = 3_000
QUIET_MS = 120_000
CONFIG = {
    "log.dirs": ",".join(DIRS),
    "num.partitions": str(PARTITIONS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "50",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1000",
    "leader.imbalance.check.interval.seconds": "300",
    "log.segment.bytes": "7000",
    "message.max.bytes": "100000",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}


class Run:
    """A cluster of three brokers under load from one producer for each partition."""

    def __init__(self, seed: int, *, power_cuts: bool = False) -> None:
        self.world = world = World(seed)
        config = {**CONFIG, "log.flush.interval.messages": "1"} if power_cuts else CONFIG
        self.cluster = SimCluster(world, config, broker_count=3, controller_count=1, power_cuts=power_cuts)
        given = GivenProducerIds(self.cluster.ledger, world.marks)
        self.cluster.start()
        assert world.run(until=self.cluster.serves, limit_ms=QUIET_MS)
        self.producers = [
            Producer(
                world,
                self.cluster.brokers,
                TopicPartition(TOPIC, number),
                given,
                self.cluster.replica_watch,
                batch_count=BATCHES,
                name=f"producer-{number}",
            )
            for number in range(PARTITIONS)
        ]
        created = world.run(until=lambda: TOPIC in self.cluster.ledger.image.topics, limit_ms=QUIET_MS)
        assert created

    def pass_time(self, ms: int) -> None:
        assert not self.world.run(until=lambda: False, limit_ms=ms)

    def leaders(self) -> dict[int, tuple[int, int]]:
        """Leader and leader epoch of each partition."""
        return {
            each.partition: (each.leader, each.leader_epoch)
            for each in self.cluster.ledger.image.topics[TOPIC].partitions
        }

    def at_rest(self) -> bool:
        """Whether all replicas are in sync, and none is being moved."""
        tables = [host.node.table for host in self.cluster.brokers if host.node is not None]
        moving = any(list(table.moves.futures(log_dir)) for table in tables for log_dir in table.log_dirs.dirs)
        return not moving and self.cluster.serves()

    def finish(self) -> None:
        """Every record is in its log once and in order, and each acknowledged one at its offset."""
        done = self.world.run(until=lambda: all(each.finished for each in self.producers), limit_ms=QUIET_MS)
        assert done, "a producer did not finish"
        assert self.world.run(until=self.at_rest, limit_ms=QUIET_MS), "not all replicas are in sync, or one is moving"
        self.cluster.check()
        for producer in self.producers:
            values = self.cluster.values(producer.tp)
            assert values == producer.sent
            assert all(values[offset] == value for offset, value in producer.acknowledged.items())


def held(host: BrokerHost, path: str) -> set[int]:
    """The partitions of the topic in this directory of a broker that runs."""
    assert host.node is not None
    [log_dir] = [each for each in host.node.table.log_dirs.dirs if each.path == path]
    return {tp.partition for tp in log_dir.logs if tp.topic == TOPIC}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_failed_directory_moves_only_its_replicas(seed: int) -> None:
    run = Run(seed)
    rng = run.world.rng
    run.pass_time(rng.randint(1000, 2000))
    host = rng.choice(run.cluster.brokers)
    path = rng.choice(DIRS)
    lost, before = held(host, path), run.leaders()
    host.disk.rename(path, "/unmounted")
    run.pass_time(NOTICED_MS)
    after = run.leaders()
    for number, (leader, epoch) in before.items():
        if number in lost and leader == host.broker_id:
            assert after[number][0] not in (host.broker_id, NO_BROKER_ID)
        else:
            assert after[number] == (leader, epoch), "not affected"
    image = run.cluster.ledger.image
    for shown in image.topics[TOPIC].partitions:
        assert (host.broker_id in shown.isr) == (shown.partition not in lost)
    host.kill(power_cut=False)
    host.disk.rename("/unmounted", path)
    run.finish()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_cuts_while_a_directory_fails_lose_nothing(seed: int) -> None:
    """Of the broker whose directory fails, before it fails, while that is noticed, or when it is mounted again."""
    run = Run(2000 + seed, power_cuts=True)
    rng = run.world.rng
    run.pass_time(rng.randint(1000, 2000))
    host = rng.choice(run.cluster.brokers)
    path = rng.choice(DIRS)
    host.disk.rename(path, "/unmounted")
    host.disk.fsync_dir("/")
    host.disk.arm(kill_at_op=rng.randint(1, 100))
    run.pass_time(rng.randint(100, NOTICED_MS))
    host.kill(power_cut=True)
    run.pass_time(rng.randint(0, NOTICED_MS))
    host.kill(power_cut=True)
    host.disk.rename("/unmounted", path)
    host.disk.fsync_dir("/")
    host.disk.arm(kill_at_op=rng.randint(1, 100))
    run.pass_time(rng.randint(100, NOTICED_MS))
    host.disk.arm(kill_at_op=None)
    run.finish()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_are_moved_under_load_and_kills(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future_log, "COPY_BYTES", 2000)
    run = Run(1000 + seed, power_cuts=seed % 2 == 1)
    world, rng = run.world, run.world.rng

    def move(node: Broker, now: Now) -> None:
        tp = TopicPartition(TOPIC, rng.randrange(PARTITIONS))
        with suppress(KafkaError):
            node.table.move(tp, rng.choice(DIRS))
            world.marks["move begun"] += 1

    for host in run.cluster.brokers:
        for _ in range(20):
            at_ms = rng.randint(0, LOAD_MS)
            world.after(at_ms, lambda host=host: host.report(host.incarnation, move))  # type: ignore[misc]
        if rng.random() < 0.7:
            world.after(rng.randint(0, LOAD_MS), partial(host.disk.arm, kill_at_op=rng.randint(1, 300)))
        if rng.random() < 0.3:
            world.after(rng.randint(0, LOAD_MS), host.stop_cleanly)
    run.pass_time(LOAD_MS)
    for host in run.cluster.brokers:
        host.disk.arm(kill_at_op=None)
    run.finish()
    assert world.marks["move begun"] > 10
