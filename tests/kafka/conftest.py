"""The cluster on which Kafka's applications run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node_cluster import NodeCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    """It compacts whatever can be compacted at once."""
    cluster = NodeCluster(tmp_path / "raylog", config={"log.cleaner.backoff.ms": "500"})
    try:
        yield cluster
    finally:
        cluster.kill()
