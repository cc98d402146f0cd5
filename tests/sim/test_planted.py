"""The simulator finds every planted mistake with its recorded seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.planted import FAULTS
from tests.sim.planting import Planted, planted
from tests.sim.scenario import run
from tests.support.forms import by_form

FOUND = [fault for fault in FAULTS.values() if fault.seed is not None]
EARLY = [fault for fault in FOUND if fault.complaint != "did not finish"]
"""The others are seen only when the time of the run is over, which takes long."""
TRIED = FOUND if by_form(0, long=1) else EARLY[1::2]
"""All of them after a change of the simulator, and of what nodes send to one another."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", TRIED, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Planted) -> None:
    assert fault.seed is not None
    with pytest.raises(AssertionError, match=fault.complaint), planted(fault):
        run(fault.seed)


def test_planted_mistakes_are_removed() -> None:
    before = [(owner, name, vars(owner)[name]) for fault in FOUND for owner, name, _ in fault.replacements()]
    for fault in FOUND:
        with planted(fault):
            pass
    assert [vars(owner)[name] for owner, name, _ in before] == [right for _, _, right in before]


def test_the_table_in_the_documentation_is_current() -> None:
    told = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    for fault in FAULTS.values():
        found = "" if fault.seed is None else f" {fault.seed} | {fault.complaint} |"
        assert f"| `{fault.name}` | {fault.what} |{found}\n" in told
