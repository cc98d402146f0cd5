"""Hours of everything at once: what the nodes use stays flat, and nothing acknowledged is lost.

Only with RAYLOG_SOAK_MINUTES. RAYLOG_SOAK_CSV names the file for the samples, and the plot is beside it. There are
producers with and without idempotence and of each codec, groups that rebalance, transactions, topics that come and go,
retention, local readers and hostile frames (tests/operators/soak_work.py), and loads with a ledger; a random node is
killed every three minutes.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.operators.conftest import Site
from tests.operators.load import load_on
from tests.operators.resources import Sampler, growth, load, svg
from tests.operators.soak_work import Work
from tests.support.node_cluster import NodeCluster

MINUTES = float(os.environ.get("RAYLOG_SOAK_MINUTES", "0"))
ROUND_SECONDS = 180.0
"""Length of a load with a topic of its own. A node is killed in the middle of it."""
SAMPLE_SECONDS = 10.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MINUTES, reason="RAYLOG_SOAK_MINUTES is not set")]


class Sampling:
    """Sleeps, and takes a sample of all nodes every ten seconds meanwhile."""

    def __init__(self, cluster: NodeCluster, path: Path) -> None:
        self._cluster = cluster
        self._sampler = Sampler(path)
        self._due = time.monotonic()

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if time.monotonic() >= self._due:
                self._due += SAMPLE_SECONDS
                self._sampler.sample(self._cluster.nodes)
            time.sleep(max(0.0, min(self._due, end) - time.monotonic()))


def test_what_nodes_use_stays_flat(site: Site, tmp_path: Path, say: Callable[[str], None]) -> None:
    cluster = site.cluster
    path = Path(os.environ.get("RAYLOG_SOAK_CSV", tmp_path / "soak.csv"))
    sampling = Sampling(cluster, path)
    work = Work(cluster.bootstrap_servers)
    work.start()
    try:
        end = time.monotonic() + 60 * MINUTES
        while time.monotonic() < end:
            soak_round(site, sampling, tmp_path, say)
            assert not work.broken, work.broken
    finally:
        work.stop()
    assert not work.broken, work.broken
    say(f"done: {dict(work.done)}; begun again: {dict(work.failed)}")
    assert all(work.done[kind] for kind in work.kinds), work.done
    samples = load(path)
    path.with_suffix(".svg").write_text(svg(samples))
    assert growth(samples) == []
    for node in cluster.nodes:
        assert "Traceback" not in node.log(), node.log_path


def soak_round(site: Site, sampling: Sampling, path: Path, say: Callable[[str], None]) -> None:
    cluster = site.cluster
    length = min(ROUND_SECONDS, 60 * MINUTES / 2)
    topic = site.new_topic()
    with load_on(cluster.bootstrap_servers, topic, path / "ledger") as running:
        sampling.sleep(length / 2)
        node = random.choice(cluster.nodes)
        node.kill()
        without = running.until_more()
        node.start()
        node.wait_until_started()
        sampling.sleep(length / 2)
        recovered = cluster.wait_until_healthy(topic)
        worst_ms = running.take_worst_ms()
        say(f"{node.spec.name} killed: progress after {without:.1f} s, in sync {recovered:.1f} s, worst {worst_ms} ms")
    site.delete_topic(topic)
