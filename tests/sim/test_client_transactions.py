"""Transactions of raylog's producer in a simulated cluster under kills, power cuts and leader changes.

A committed transaction is visible completely, an aborted one not at all, and a fenced producer commits nothing.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.sim.client_transactor import ClientTransactor
from tests.sim.client_world import CALM_MS, client_world, go_through_trouble
from tests.sim.scenario import PARTITIONS, QUIET_MS, SERVED_MS_MAX
from tests.sim.test_clients import random_settings
from tests.sim.transfer_ledger import TransferLedger
from tests.support.forms import by_form

TOPIC = "transfers"
SEEDS = by_form(8, quick=4, long=2000)
SEEDS_PER_TEST = 4


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_transactions_are_atomic(first: int) -> None:
    marks = sum((run(seed) for seed in range(first, first + SEEDS_PER_TEST)), Counter[str]())
    assert marks["transaction committed"] > 5 * SEEDS_PER_TEST
    assert marks["client's transaction aborted"] > 0


def run(seed: int) -> Counter[str]:
    """The marks of the run. Raises AssertionError for a violated guarantee."""
    world, config, cluster = client_world(seed)
    rng = world.rng
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
    go_through_trouble(world, config, cluster, [transactor.break_connection for transactor in transactors])
    world.run(until=cluster.serves, limit_ms=CALM_MS)
    world.run(until=lambda: False, limit_ms=CALM_MS)
    for transactor in transactors:
        transactor.ends = True
        assert world.run(until=lambda each=transactor: each.finished, limit_ms=QUIET_MS), f"{transactor.name} is stuck"  # type: ignore[misc]
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    assert world.run(until=lambda: ledger.is_at_rest(cluster), limit_ms=QUIET_MS), "a transaction stays open"
    ledger.check(cluster, world.marks)
    return world.marks
