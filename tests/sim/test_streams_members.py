"""Members of a streams group in a simulated cluster with kills, power cuts, cuts of the network and leader changes.

An active task has one owner at a time and in one epoch, and in the end each task has one.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.client_world import CALM_MS, client_world, go_through_trouble
from tests.sim.planted_groups import STREAMS_FAULTS
from tests.sim.planting import Planted, planted, replaced
from tests.sim.scenario import PARTITIONS, TOPIC
from tests.sim.streams_member import STREAMS_CONFIG, StreamsMember, TaskLog, one_owner_each
from tests.support.forms import by_form

SEEDS = by_form(1, quick=1, long=500)
SETTLED_MS_MAX = 60_000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_task_goes_to_one_member(seed: int) -> None:
    marks = run(seed)
    assert marks["tasks assigned"] > 2


@pytest.mark.parametrize("fault", STREAMS_FAULTS, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Planted) -> None:
    assert fault.seed is not None
    with pytest.raises(AssertionError, match=fault.complaint), planted(fault):
        run(fault.seed)


def run(seed: int) -> Counter[str]:
    """The marks of the run. Raises AssertionError for a violated guarantee."""
    with replaced(one_owner_each()):
        return _run(seed)


def _run(seed: int) -> Counter[str]:
    world, config, cluster = client_world(seed, STREAMS_CONFIG)
    log = TaskLog()
    processes = [f"process-{number}" for number in range(world.rng.randint(1, 3))]
    members = [StreamsMember(world, cluster.brokers, log, TOPIC, name) for name in (*processes, processes[0])]
    go_through_trouble(world, config, cluster, [member.break_connection for member in members])
    for member in members:
        member.trouble = False
    world.run(until=cluster.serves, limit_ms=CALM_MS)

    copies = 1 if len(processes) > 1 else 0

    def is_complete() -> bool:
        active = sorted(task for member in members for task in member.owned.active)
        standby = sorted(task for member in members for task in member.owned.standby)
        return (
            active == [(name, number) for name in "01" for number in range(PARTITIONS)]
            and standby == [("1", number) for number in range(PARTITIONS)] * copies
            and all(member.settled for member in members)
        )

    assert world.run(until=is_complete, limit_ms=SETTLED_MS_MAX), "there are tasks that no member gets"
    return world.marks
