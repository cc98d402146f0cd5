"""Acknowledged records are never lost, duplicated, reordered or changed, and uncommitted records are never revealed.

Consumer groups become stable by themselves, with one owner for each partition and every commit in its generation. This
holds under kills, power cuts, full disks, network partitions, hanging processes and hostile peers, of brokers and
controllers. A failure prints its seed: `script/sim --seed N` repeats that run exactly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from tests.sim.regressions import REGRESSIONS
from tests.sim.scenario import run
from tests.support.forms import by_form

SEEDS = by_form(18, quick=4, long=1000)
PER_TEST = 8
MUST_HAPPEN = (
    "admin met INVALID_REPLICATION_FACTOR",
    "another replica leads",
    "answer timed out",
    "a broker cut from a broker",
    "a broker cut from a controller",
    "a controller cut from a controller",
    "broker fenced by a request",
    "broker fenced by connection lost",
    "broker fenced by tick",
    "broker hung",
    "broker hung past its session",
    "broker isolated",
    "broker killed",
    "broker killed while it recovered",
    "broker killed within a write",
    "broker lost its power",
    "broker lost what it had not synced",
    "broker slept through two snapshots",
    "broker stopped cleanly",
    "broker started after a crash",
    "burst: away and back",
    "burst: deposed",
    "burst: hung",
    "burst: isolated",
    "burst: late follower",
    "burst: late proposal",
    "burst: mid proposal",
    "burst: mid write",
    "burst: one after the other",
    "burst: predecessor back",
    "burst: slow clients",
    "burst: unheard proposals",
    "closed by the node",
    "commit acknowledged",
    "commit acknowledged under a generation",
    "commit refused by the group",
    "connection broken",
    "consumer met COORDINATOR_NOT_AVAILABLE",
    "consumer met FENCED_LEADER_EPOCH",
    "consumer met NOT_COORDINATOR",
    "controller deposed",
    "controller deposed with decisions not committed",
    "controller elected",
    "controlled shutdown begun",
    "controller gave up on its disk",
    "controller hung",
    "controller killed",
    "controller killed while it recovered",
    "controller killed within a write",
    "controller lost its power",
    "controller started after a crash",
    "controller stopped cleanly",
    "coordinator moved with members",
    "created topic shown at once",
    "cut in one direction",
    "disk full",
    "election lost",
    "envelope answer lost",
    "follower cut its log",
    "hung up by a link",
    "isr grown",
    "isr shrunk",
    "link broken",
    "link slow",
    "member committed under a former generation",
    "member died",
    "member died when all else came right",
    "member hung",
    "member joined",
    "member left",
    "member met COORDINATOR_NOT_AVAILABLE",
    "member met FENCED_INSTANCE_ID",
    "member met NOT_COORDINATOR",
    "member met REBALANCE_IN_PROGRESS",
    "member met UNKNOWN_MEMBER_ID",
    "metadata log cut",
    "muted",
    "name of a deleted topic used again",
    "partition where it was to be",
    "partition without a leader shown",
    "preferred leader elected",
    "produce KAFKA_STORAGE_ERROR",
    "produce NOT_LEADER_OR_FOLLOWER",
    "produce OUT_OF_ORDER_SEQUENCE_NUMBER",
    "producer ids had run out",
    "quorum burst: active cut off",
    "quorum burst: active hung",
    "quorum burst: all lose power",
    "quorum burst: behind when active dies",
    "quorum burst: hear in one direction",
    "quorum burst: killed mid append",
    "quorum burst: killed mid election",
    "quorum burst: one leader after the other",
    "quorum burst: torn apart",
    "reassignment begun",
    "reassignment cancelled",
    "reassignment completed",
    "reassignment completed at once",
    "reassignment replaced",
    "registration refused while another incarnation was alive",
    "snapshot installed",
    "snapshot taken or installed",
    "static leader kept the assignment",
    "job done",
    "the last one in sync leads",
    "topic deleted while a broker was away",
    "topic grown",
    "transaction aborted with a batch under way",
    "transaction committed",
    "transaction of version 2 ended",
    "transactor met CONCURRENT_TRANSACTIONS",
    "transactor met PRODUCER_FENCED",
    "wall clock jumped",
)
"""Marks that a run over all seeds must have reached, so that it covers these cases."""
ALSO_RUN = (24,)
"""Seeds that reach what the first ones do not: produce OUT_OF_ORDER_SEQUENCE_NUMBER."""
RARE = ("broker killed while it stopped", "controller killed while it stopped")
"""Marks that only the long form is sure to reach."""


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_guarantees_hold(first: int) -> None:
    for seed in range(first, min(first + PER_TEST, SEEDS)):
        _run(seed)


@pytest.mark.slow
def test_seeds_cover_all_situations() -> None:
    seen: Counter[str] = Counter()
    for seed in {*range(SEEDS), *ALSO_RUN, *REGRESSIONS}:
        seen.update(_run(seed))
    expected = (*MUST_HAPPEN, *RARE) if SEEDS >= 1000 else MUST_HAPPEN
    assert [mark for mark in expected if not seen[mark]] == []
    assert seen["records acknowledged"] > 300 * SEEDS
    assert seen["run with 2,000 events in trouble"] > SEEDS // 2


@pytest.mark.slow
def test_seeds_that_once_failed() -> None:
    for seed in sorted(REGRESSIONS):
        _run(seed)


def test_a_seed_gives_the_same_run_again() -> None:
    assert run(7) == run(7)


@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_every_process() -> None:
    """Also with another hash seed of Python."""
    code = "from tests.sim.scenario import run_world; print(run_world(7).fingerprint)"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1", "random")
    }
    assert len(told) == 1


@cache
def _run(seed: int) -> Counter[str]:
    """The marks of the run. Each seed runs once per process, for the first test that needs it."""
    try:
        return run(seed)
    except Exception as failure:
        failure.add_note(f"seed {seed}: script/sim --seed {seed}")
        raise
