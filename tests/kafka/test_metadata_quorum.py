"""kafka-features and kafka-metadata-quorum of Apache Kafka change the quorum of a raylog cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster_thread import CONTROLLER_ID, RunningCluster, cluster_thread
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka

OTHER_ID = CONTROLLER_ID + 1
DIRECTORY_ID = "AAAAAAAAAAAAAAAAAAAABw"
COMMAND = "org.apache.kafka.tools.MetadataQuorumCommand"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_thread({}, tmp_path / "raylog") as running:
        yield running


def test_voters_are_described_added_and_removed(cluster: RunningCluster, tmp_path: Path) -> None:
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    config = _controller(tmp_path)
    removal = ("remove-controller", "--controller-id", str(OTHER_ID), "--controller-directory-id", DIRECTORY_ID)
    with pytest.raises(AssertionError, match="UnsupportedVersionException"):
        java(COMMAND, *servers, *removal)
    java("org.apache.kafka.tools.FeatureCommand", *servers, "upgrade", "--feature", "kraft.version=1")
    status = java(COMMAND, *servers, "describe", "--status")
    [voters] = [line for line in status.splitlines() if line.startswith("CurrentVoters:")]
    assert f'"id": {CONTROLLER_ID}' in voters
    assert '"directoryId": null' not in voters
    with pytest.raises(AssertionError, match="VoterNotFoundException"):
        java(COMMAND, *servers, *removal)
    with pytest.raises(AssertionError, match=r"TimeoutException.*has not caught up"):
        java(COMMAND, *servers, "--command-config", str(config), "add-controller")


def _controller(tmp_path: Path) -> Path:
    """The configuration of a controller that does not run."""
    log_dir = tmp_path / "controller"
    log_dir.mkdir()
    meta = {"version": "1", "cluster.id": "x", "node.id": str(OTHER_ID), "directory.id": DIRECTORY_ID}
    (log_dir / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in meta.items()))
    config = {
        "process.roles": "controller",
        "node.id": str(OTHER_ID),
        "log.dirs": str(log_dir),
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    }
    path = tmp_path / "controller.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    return path
