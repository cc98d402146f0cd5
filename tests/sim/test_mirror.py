"""A mirror between two simulated clusters copies every record, in order and none twice, whatever fails on both sides.

No offset is translated to a place behind its record, and every offset sync describes one record in both clusters.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.mirror import run
from tests.sim.planted_mirror import FAULTS
from tests.sim.planting import Planted, planted
from tests.support.forms import by_form

SEEDS = by_form(2, long=500)
SEEDS_PER_TEST = by_form(2, long=20)  # what must have happened may be missing in one of them
PLANTED = list(FAULTS.values())[: by_form(2, long=len(FAULTS))]


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_readers_of_the_copies_see_the_source_s_records(first: int) -> None:
    marks = sum((run(seed) for seed in range(first, first + SEEDS_PER_TEST)), Counter[str]())
    for mark in ("copied", "translated", "offset syncs"):
        assert marks[mark] > 10 * SEEDS_PER_TEST, mark
    assert marks["worker killed"] + marks["worker fenced"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Planted) -> None:
    assert fault.seed is not None
    with pytest.raises(AssertionError, match=fault.complaint), planted(fault):
        run(fault.seed)
