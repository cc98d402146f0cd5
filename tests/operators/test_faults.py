"""Whatever happens to one of three brokers or controllers, no acknowledged record is lost and all are in sync again.

Stock clients write with acks=all to partitions with three replicas, two of which must be in sync, and read along. The
usual form tries some of the faults in tests/operators/faults.py, `--long` all of them, and then random ones for
RAYLOG_OPERATORS_MINUTES (60).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.operators.conftest import Site
from tests.operators.faults import CONTROLLER, FAULTS, LEADER, Fault, Scene
from tests.operators.load import load_on
from tests.operators.long_form import IS_LONG, long_only
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

MINUTES = float(os.environ.get("RAYLOG_OPERATORS_MINUTES", "60"))


def victim(site: Site, topic: str, role: str) -> NodeProcess:
    if role == LEADER:
        return site.cluster.leader(topic)
    if role == CONTROLLER:
        return site.cluster.active_controller()
    return site.cluster.followers(topic)[0]


def try_fault(site: Site, fault: Fault, role: str, path: Path, say: Callable[[str], None]) -> None:
    topic = site.new_topic()
    with load_on(site.cluster.bootstrap_servers, topic, path) as load:
        scene = Scene(site.cluster, site.calls, topic, load, victim(site, topic, role), role)
        fault.run(scene)
        began = time.monotonic()
        ended = site.cluster.restart_ended()
        site.cluster.wait_until_healthy(topic)
        recovered = time.monotonic() - began
        load.until_more()
        said = f"progress after {scene.without_seconds:.1f} s, all in sync {recovered:.1f} s after the repair"
        restarted = f", restarted {', '.join(ended)}" if ended else ""
        say(f"{fault.name}, {role}: {said}{restarted}; worst latency {load.take_worst_ms()} ms")
    site.delete_topic(topic)


@pytest.mark.parametrize(
    ("fault", "role"),
    [
        pytest.param(fault, role, id=f"{fault.name}-{role}")
        for fault in FAULTS
        for role in (fault.roles if IS_LONG else fault.usual)
    ],
)
def test_a_fault_costs_no_acknowledged_record(
    site: Site, fault: Fault, role: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    if reason := fault.why_not():
        pytest.skip(reason)
    try_fault(site, fault, role, tmp_path / "ledger", say)


@long_only
def test_random_faults_cost_no_acknowledged_record(site: Site, tmp_path: Path, say: Callable[[str], None]) -> None:
    seed = random.randrange(1 << 32)
    say(f"seed {seed}")
    rng = random.Random(seed)
    possible = [(fault, role) for fault in FAULTS if not fault.why_not() for role in fault.roles]
    end = time.monotonic() + 60 * MINUTES
    while time.monotonic() < end:
        fault, role = rng.choice(possible)
        try_fault(site, fault, role, tmp_path / "ledger", say)
