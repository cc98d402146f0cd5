"""Groups of raylog's consumers in a simulated cluster with kills, power cuts, cuts of the network and leader changes.

Each record is read by a member of the group, in the order of its partition, and none is ever another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from raylog.core.ids import TopicPartition
from tests.sim.client_world import ALL_PARTITIONS, CALM_MS, client_world, go_through_trouble
from tests.sim.group_consumer import BY_COORDINATOR, GroupConsumer, GroupLog, one_owner_each
from tests.sim.planted_groups import CONSUMER_FAULTS
from tests.sim.planting import Planted, planted, replaced
from tests.sim.scenario import QUIET_MS, SERVED_MS_MAX, TOPIC
from tests.sim.test_clients import SimProducer
from tests.sim.world import World
from tests.support.forms import by_form

SEEDS = by_form(8, quick=4, long=2000)
SEEDS_PER_TEST = by_form(4, quick=4, long=20)
"""In the long form there are seeds in which nothing can be written. Others of the same test make up for them."""
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky")
SETTLED_MS_MAX = 60_000
SEEDS_BY_COORDINATOR = by_form(4, quick=4, long=500)
CONSUMER_CONFIG = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "800",
}


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_a_group_reads_every_record(first: int) -> None:
    read = [run(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(read) > 50 * SEEDS_PER_TEST


@pytest.mark.parametrize("first", range(0, SEEDS_BY_COORDINATOR, SEEDS_PER_TEST))
def test_a_group_whose_coordinator_assigns_reads_every_record(first: int) -> None:
    """No partition has two owners at a time, or in one epoch."""
    found = [run_by_coordinator(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(log.returned for _, log in found) > 50 * SEEDS_PER_TEST
    marks = sum((world.marks for world, _ in found), Counter[str]())
    assert marks["partitions revoked"] > 0
    assert marks["partitions lost"] > 0


@pytest.mark.parametrize("fault", CONSUMER_FAULTS, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Planted) -> None:
    assert fault.seed is not None
    with pytest.raises(AssertionError, match=fault.complaint), planted(fault):
        run_by_coordinator(fault.seed)


def run(seed: int) -> int:
    """The number of records that were read."""
    return run_world(seed)[1].returned


def run_by_coordinator(seed: int) -> tuple[World, GroupLog]:
    with replaced(one_owner_each()):
        return run_world(seed, CONSUMER_CONFIG)


def run_world(seed: int, consumer_config: Mapping[str, str] | None = None) -> tuple[World, GroupLog]:
    """With `consumer_config` the coordinator of the group assigns."""
    world, config, cluster = client_world(seed, consumer_config)
    rng = world.rng
    producer = SimProducer(world, cluster.brokers, "producer")
    log, strategy = GroupLog(), rng.choice(STRATEGIES) if consumer_config is None else BY_COORDINATOR
    consumers = [
        GroupConsumer(
            world,
            cluster.brokers,
            log,
            TOPIC,
            strategy,
            instance=f"seat-{number}" if consumer_config is None and rng.random() < 0.3 else None,
        )
        for number in range(rng.randint(1, 4))
    ]
    breaks = [producer.driver.break_connection, *(consumer.break_connection for consumer in consumers)]
    go_through_trouble(world, config, cluster, breaks)
    for consumer in consumers:
        consumer.trouble = False
    world.run(until=cluster.serves, limit_ms=CALM_MS)
    producer.ends = True
    assert world.run(until=lambda: producer.finished, limit_ms=QUIET_MS)
    for consumer in consumers:
        consumer.commits = False  # else the logs of the offsets are never at rest
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    values = {tp: cluster.values(tp) for tp in ALL_PARTITIONS if producer.sent[tp]}

    def all_read() -> bool:
        positions: dict[TopicPartition, int] = {}
        for consumer in consumers:
            positions |= consumer.positions
        return all(positions.get(tp, -1) >= len(values[tp]) for tp in values)

    assert world.run(until=all_read, limit_ms=SETTLED_MS_MAX), "the group does not read to the end"
    for tp, written in values.items():
        for offset, value in enumerate(written):
            if value is not None:
                assert log.values[tp].get(offset) == value, f"{tp}: offset {offset} was not read"
    return world, log
