"""No acknowledged record is lost, doubled, reordered or changed, whatever kills, power cuts, full disks and peers do.

A failure names its seed: `script/sim --seed N` runs that one again, exactly.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.regressions import REGRESSIONS
from tests.sim.scenario import run

SEEDS = 1000
PER_TEST = 50
MUST_HAPPEN = (
    "killed",
    "killed within a write",
    "killed while it recovered",
    "killed while it stopped",
    "power cut",
    "clean stop",
    "connection broken",
    "disk full",
    "wall clock jumped",
    "closed by the broker",
    "commit acknowledged",
    "produce OUT_OF_ORDER_SEQUENCE_NUMBER",
    "muted",
)
"""What a run over all seeds must have met, or it proves less than it says."""

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_promises_hold(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        _seen.update(_run(seed))


def test_trouble_was_met() -> None:
    if not _seen:  # run alone
        for seed in range(PER_TEST):
            _seen.update(_run(seed))
        assert _seen["killed"]
        return
    assert [mark for mark in MUST_HAPPEN if not _seen[mark]] == []
    assert _seen["records acknowledged"] > 100 * SEEDS


@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_what_failed_once(seed: int) -> None:
    _run(seed)


def test_one_seed_is_one_run() -> None:
    assert _run(7) == _run(7)


def _run(seed: int) -> Counter[str]:
    try:
        return run(seed)
    except Exception as failure:
        failure.add_note(f"seed {seed}: script/sim --seed {seed}")
        raise
