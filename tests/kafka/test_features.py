"""kafka-features shows the levels of a raylog cluster, raises them and lowers them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.controller import features
from raylog.metadata.levels import FIRST_LEVEL, LATEST_LEVEL, METADATA_FEATURE
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    """At the first level, as after an upgrade of all nodes."""
    monkeypatch.setattr(features, "NEW_CLUSTER", ())
    with cluster_thread({}, tmp_path / "raylog", brokers=2) as running:
        yield running


def test_the_level_is_shown_and_raised(cluster: RunningCluster) -> None:
    def run(*arguments: str) -> str:
        servers = cluster.bootstrap_servers
        return java("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", servers, *arguments)

    def finalized(feature: str = METADATA_FEATURE) -> str:
        [line] = [line for line in run("describe").splitlines() if feature in line]
        return line.split("FinalizedVersionLevel: ")[1].split()[0]

    assert finalized() == str(FIRST_LEVEL)
    with pytest.raises(AssertionError, match=f"supports levels {FIRST_LEVEL} to {LATEST_LEVEL}"):
        run("upgrade", "--feature", f"{METADATA_FEATURE}={LATEST_LEVEL + 1}")
    assert finalized() == str(FIRST_LEVEL)
    raised = run("upgrade", "--feature", f"{METADATA_FEATURE}={LATEST_LEVEL}")
    assert f"{METADATA_FEATURE} was upgraded to {LATEST_LEVEL}" in raised
    assert finalized() == str(LATEST_LEVEL)
    assert finalized("transaction.version") == "0"
    with pytest.raises(AssertionError, match="supports levels 0 to 2"):
        run("upgrade", "--feature", "transaction.version=3")
    run("upgrade", "--feature", "transaction.version=2")
    assert finalized("transaction.version") == "2"
    run("downgrade", "--feature", "transaction.version=1")
    assert finalized("transaction.version") == "1"
    run("disable", "--feature", "transaction.version")
    assert finalized("transaction.version") == "0"
    with pytest.raises(AssertionError, match="is not a feature of this cluster"):
        run("upgrade", "--feature", "eligible.leader.replicas.version=1")
