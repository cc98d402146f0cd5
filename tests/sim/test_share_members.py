"""Share groups of raylog's own consumers in a simulated cluster with kills, power cuts, cuts and leader changes.

A record is acquired by one member at a time, its delivery count is right, and it is delivered until it is accepted or
rejected, or as often as the limit says.
"""

from __future__ import annotations

from collections import Counter

import pytest

from raylog.core.ids import TopicPartition
from raylog.sharecoord.records import SharePartitionKey
from tests.sim.client_world import ALL_PARTITIONS, CALM_MS, client_world, go_through_trouble
from tests.sim.cluster import SimCluster
from tests.sim.planted_groups import SHARE_FAULTS
from tests.sim.planting import Planted, planted
from tests.sim.scenario import QUIET_MS, SERVED_MS_MAX, TOPIC
from tests.sim.share_ledger import ShareLedger
from tests.sim.share_member import GROUP, SHARE_CONFIG, GroupConfigurer, ShareMember
from tests.sim.test_clients import SimProducer
from tests.support.forms import by_form

SEEDS = by_form(4, quick=4, long=500)
SEEDS_PER_TEST = 4
SETTLED_MS_MAX = 120_000


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_each_record_goes_to_one_member_until_it_is_done(first: int) -> None:
    marks = sum((run(seed) for seed in range(first, first + SEEDS_PER_TEST)), Counter[str]())
    assert marks["delivery 1"] > 50 * SEEDS_PER_TEST
    assert marks["delivery 2"] > 0
    assert marks["share member killed"] > 0


@pytest.mark.parametrize("fault", SHARE_FAULTS, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Planted) -> None:
    assert fault.seed is not None
    with pytest.raises(AssertionError, match=fault.complaint), planted(fault):
        run(fault.seed)


def run(seed: int) -> Counter[str]:
    """The marks of the run. Raises AssertionError for a violated guarantee."""
    ledger = ShareLedger()
    with ledger.watching():
        return _run(seed, ledger)


def _run(seed: int, ledger: ShareLedger) -> Counter[str]:
    world, config, cluster = client_world(seed, SHARE_CONFIG)
    rng = world.rng
    configurer = GroupConfigurer(world, cluster.brokers, TOPIC)
    assert world.run(until=lambda: configurer.finished, limit_ms=QUIET_MS)
    producer = SimProducer(world, cluster.brokers, "producer")
    members = [ShareMember(world, cluster.brokers, ledger, TOPIC) for _ in range(rng.randint(2, 4))]
    breaks = [producer.driver.break_connection, *(member.break_connection for member in members)]
    go_through_trouble(world, config, cluster, breaks)
    for member in members:
        member.trouble = False
    world.run(until=cluster.serves, limit_ms=CALM_MS)
    producer.ends = True
    assert world.run(until=lambda: producer.finished, limit_ms=QUIET_MS)
    written = [tp for tp in ALL_PARTITIONS if producer.sent[tp]]
    done = world.run(until=lambda: all(_is_done(cluster, tp) for tp in written), limit_ms=SETTLED_MS_MAX)
    assert done, "records are left that no member gets"
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    for tp in written:
        ledger.check(tp, cluster.values(tp))
    return world.marks


def _is_done(cluster: SimCluster, tp: TopicPartition) -> bool:
    """Whether the group has nothing left in the partition."""
    for host in cluster.brokers:
        broker = host.node
        partition = None if broker is None else broker.partitions.get(tp)
        if broker is not None and partition is not None and partition.is_leader:
            topic = broker.image.topics[tp.topic]
            machine = broker.share_partitions.loaded(SharePartitionKey(GROUP, topic.topic_id, tp.partition))
            return machine is not None and machine.start_offset >= partition.high_watermark
    return False
