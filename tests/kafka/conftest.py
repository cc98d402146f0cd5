"""The cluster on which Kafka's applications run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node_cluster import NodeCluster

STREAMS_GROUPS = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.num.standby.replicas": "1",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    """It compacts whatever can be compacted at once, and streams groups have standby tasks and notice a kill soon."""
    cluster = NodeCluster(tmp_path / "raylog", config={"log.cleaner.backoff.ms": "500", **STREAMS_GROUPS})
    try:
        yield cluster
    finally:
        cluster.kill()
