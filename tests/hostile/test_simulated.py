"""A peer that sends valid, nearly valid and absurd requests to a simulated cluster costs no other client a record."""

from __future__ import annotations

import pytest

from raylog.core.ids import TopicPartition
from tests.hostile.sim_peer import SimPeer
from tests.sim.cluster import SimCluster
from tests.sim.consumer import Consumer
from tests.sim.producer import Producer
from tests.sim.producer_ids import GivenProducerIds
from tests.sim.world import World
from tests.support.forms import by_form

TOPIC = TopicPartition("ledger", 0)
SEEDS = by_form(4, quick=1, long=200)
BATCHES = by_form(60, quick=30, long=200)
OFFSETS_PARTITIONS = 2
CONFIG = {
    "num.partitions": "1",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "2",
}
LIMIT_MS = 600_000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_record_is_there_once_and_in_order(seed: int) -> None:
    world = World(seed)
    cluster = SimCluster(world, CONFIG, broker_count=3, controller_count=1 + 2 * (seed % 2), power_cuts=False)
    given = GivenProducerIds(cluster.ledger, world.marks)
    cluster.start()
    assert world.run(until=cluster.serves, limit_ms=LIMIT_MS)
    hosts, watch = cluster.brokers, cluster.replica_watch
    peer = SimPeer(world, hosts)
    producer = Producer(world, hosts, TOPIC, given, watch, batch_count=BATCHES, name="producer")
    consumer = Consumer(world, hosts, TOPIC.topic, 1, watch, offsets_count=OFFSETS_PARTITIONS, name="consumer")
    try:
        assert world.run(until=lambda: producer.finished, limit_ms=LIMIT_MS), "the producer did not finish"
        peer.finished = True
        assert world.run(until=lambda: len(consumer.seen[TOPIC]) >= len(producer.sent), limit_ms=LIMIT_MS), (
            "the consumer did not read all records"
        )
        consumer.finished = True
        assert world.run(until=cluster.serves, limit_ms=LIMIT_MS), "a partition has no leader"
    except Exception as error:
        raise AssertionError(f"seed {seed}, step {peer.number} of the hostile peer: {error}") from error
    cluster.check()
    assert cluster.values(TOPIC) == producer.sent
    assert all(producer.sent[offset] == value for offset, value in consumer.seen[TOPIC].items())
    assert world.marks["hostile peer answered"] > 10
    assert world.marks["controller elected"] == 1, "a leader was replaced"
    assert not [mark for mark in world.marks if mark.startswith("broker fenced")]
