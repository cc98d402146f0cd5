"""Ids begin where the first start says, and each broker keeps the configuration that it alone was given."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import raylog
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.ports import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "single-brokers"


def registered(cluster: raylog.Cluster) -> dict[int, tuple[int, str | None]]:
    """The advertised port and the rack of each broker."""
    with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        nodes = client.describe_cluster(include_fenced_brokers=True).nodes
        return {node.node_id: (node.port, node.rack) for node in nodes}


def test_ids_and_the_configuration_of_single_brokers_are_kept(tmp_path: Path) -> None:
    ports = free_ports(2)
    single = {
        100: {"broker.rack": "a"},
        101: {
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},PROXY://127.0.0.1:{ports[1]}",
            "listener.security.protocol.map": "PROXY:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        },
    }
    start = partial(raylog.start, NAME, data_dir=str(tmp_path / "data"), broker_config=single)
    with start(brokers=2, config={"node.id": 100, "broker.rack": "b"}, **WITHOUT_COORDINATORS) as cluster:
        assert cluster.broker_ids == [100, 101]
        before = registered(cluster)
        assert before[100][1] == "a"
        assert before[101] == (ports[0], "b")
        assert [each.id for each in cluster.add_brokers()] == [102]
        cluster.rolling_restart()
        after = registered(cluster)
        assert {broker_id: after[broker_id] for broker_id in before} == before
        assert after[102][1] == "b"
    with start(config={"broker.rack": "b"}) as cluster:
        assert registered(cluster) == after
    with pytest.raises(raylog.ConfigError, match=r"node\.id=0: the first broker of .* has id 100, which is kept"):
        start(config={"node.id": 0})
