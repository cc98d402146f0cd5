"""Groups of raylog's consumers in a simulated cluster with kills, power cuts, cuts of the network and leader changes.

Each record is read by a member of the group, in the order of its partition, and none is ever another one.
"""

from __future__ import annotations

import pytest

from raylog.core.ids import TopicPartition
from tests.sim.client_world import ALL_PARTITIONS, CALM_MS, client_world, go_through_trouble
from tests.sim.group_consumer import GroupConsumer, GroupLog
from tests.sim.scenario import QUIET_MS, SERVED_MS_MAX, TOPIC
from tests.sim.test_clients import SimProducer
from tests.sim.world import World
from tests.support.forms import by_form

SEEDS = by_form(8, quick=4, long=2000)
SEEDS_PER_TEST = 4
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky")
SETTLED_MS_MAX = 60_000


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_a_group_reads_every_record(first: int) -> None:
    read = [run(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(read) > 50 * SEEDS_PER_TEST


def run(seed: int) -> int:
    """The number of records that were read."""
    return run_world(seed)[1].returned


def run_world(seed: int) -> tuple[World, GroupLog]:
    world, config, cluster = client_world(seed)
    rng = world.rng
    producer = SimProducer(world, cluster.brokers, "producer")
    log, strategy = GroupLog(), rng.choice(STRATEGIES)
    consumers = [
        GroupConsumer(
            world,
            cluster.brokers,
            log,
            TOPIC,
            strategy,
            instance=f"seat-{number}" if rng.random() < 0.3 else None,
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
