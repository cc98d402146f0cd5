"""Transactions of raylog's producer in a simulated cluster under kills, power cuts and leader changes.

A committed transaction is visible completely, an aborted one not at all, and a fenced producer commits nothing.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from raylog.core.ids import TopicPartition
from tests.sim.bursts import Bursts
from tests.sim.client_transactor import ClientTransactor
from tests.sim.cluster import SimCluster
from tests.sim.quorum_bursts import QuorumBursts
from tests.sim.scenario import PARTITIONS, QUIET_MS, SERVED_MS_MAX, random_config
from tests.sim.test_clients import random_settings
from tests.sim.transfer_ledger import TransferLedger
from tests.sim.trouble import USUAL_MS, end_trouble, plan_trouble
from tests.sim.world import World
from tests.support.forms import by_form

TOPIC = "transfers"
SEEDS = by_form(12, quick=4, long=2000)
SEEDS_PER_TEST = 4
CALM_MS = 3_000


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_transactions_are_atomic(first: int) -> None:
    marks = sum((run(seed) for seed in range(first, first + SEEDS_PER_TEST)), Counter[str]())
    assert marks["transaction committed"] > 5 * SEEDS_PER_TEST
    assert marks["client's transaction aborted"] > 0


def run(seed: int) -> Counter[str]:
    """The marks of the run. Raises AssertionError for a violated guarantee."""
    world = World(seed)
    rng = world.rng
    brokers = rng.choice((1, 3, 3))
    power_cuts = rng.random() < 0.5
    config = random_config(rng, broker_count=brokers, power_cuts=power_cuts)
    cluster = SimCluster(world, config, broker_count=brokers, controller_count=1, power_cuts=power_cuts)
    cluster.replica_watch.producers_give_up = True
    cluster.start()
    ledger = TransferLedger(TOPIC, PARTITIONS)
    shared = rng.random() < 0.5
    transactors = [
        ClientTransactor(
            world,
            cluster.brokers,
            ledger,
            name,
            new_settings=partial(random_settings, rng, transactional_id="shared" if shared else name),
        )
        for name in ("one", "other")
    ]
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    trouble = Bursts(cluster, config, partitions), QuorumBursts(cluster, config)
    breaks = [transactor.break_connection for transactor in transactors]
    plan_trouble(cluster, breaks, *trouble, trouble_ms=USUAL_MS)
    world.run(until=lambda: False, limit_ms=USUAL_MS)
    end_trouble(cluster)
    world.run(until=cluster.serves, limit_ms=CALM_MS)
    world.run(until=lambda: False, limit_ms=CALM_MS)
    for transactor in transactors:
        transactor.ends = True
        assert world.run(until=lambda each=transactor: each.finished, limit_ms=QUIET_MS), f"{transactor.name} is stuck"  # type: ignore[misc]
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    assert world.run(until=lambda: ledger.is_at_rest(cluster), limit_ms=QUIET_MS), "a transaction stays open"
    ledger.check(cluster, world.marks)
    return world.marks
