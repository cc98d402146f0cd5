"""All nodes are restarted one after another under load; clients lose nothing and get no error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import raylog
from raylog.actors import broker_restart
from raylog.actors import cluster as actors_cluster
from raylog.actors.broker_restart import not_in_sync_on
from raylog.actors.cluster import cluster_status
from raylog.client.admin.topics import describe_topics
from tests.compat.topics import create_topic
from tests.ray.clients import read
from tests.ray.test_three_brokers import PartitionLoad, until_more
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

TOPIC = "spread"
PARTITIONS = 3
CONTROLLERS = 3
RESTART_SECONDS = 120.0
"""For each node."""


@pytest.fixture(scope="module")
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    with raylog.start(
        "rolling",
        brokers=3,
        controllers=CONTROLLERS,
        config={"min.insync.replicas": "2"},
        **WITHOUT_COORDINATORS,
    ) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, replication_factor=3)
        yield cluster


def pids() -> set[int]:
    """Of the processes of all brokers and controllers."""
    status = cluster_status("rolling")
    found = {broker.pid for broker in status.brokers} | {controller.pid for controller in status.controllers}
    assert len(found) == 3 + CONTROLLERS
    return found


def test_clients_get_no_error_while_all_nodes_restart_though_one_hangs(
    cluster: raylog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby controller hangs before the restart begins, and does not stop by itself."""
    monkeypatch.setattr(broker_restart, "STOP_SECONDS", 10.0)
    monkeypatch.setattr(broker_restart, "ANSWER_SECONDS", 2.0)
    loads = [PartitionLoad(cluster.bootstrap_servers, number) for number in range(PARTITIONS)]
    until_more(loads, loads, 500)
    before = pids()
    hung = next(each for each in cluster_status("rolling").controllers if not each.active)
    os.kill(hung.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        restarting = thread.submit(cluster.rolling_restart, timeout_seconds=RESTART_SECONDS)
        while not restarting.done():
            for load in loads:
                load.work()
        restarting.result()
    with RawClient(cluster.bootstrap_servers, client_id="test") as client:
        topics = client.run(describe_topics()).values()
        assert [not_in_sync_on(broker_id, topics) for broker_id in range(3)] == [[], [], []]
    assert not before & pids()
    assert sum(each.active for each in cluster_status("rolling").controllers) == 1
    until_more(loads, loads, 500)
    for load in loads:
        load.finish()
        assert read(cluster.bootstrap_servers, TOPIC, load.partition) == load.ledger


def test_a_broker_that_hangs_hinders_neither_connect_nor_its_own_restart(
    cluster: raylog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_restart, "STOP_SECONDS", 10.0)
    monkeypatch.setattr(broker_restart, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(actors_cluster, "CHANGE_SECONDS", 2.0)
    hung = cluster.status()[1]
    os.kill(hung.pid, signal.SIGSTOP)
    with raylog.connect("rolling") as connected:
        others = [f"{each.host}:{each.port}" for each in cluster.status() if each.id != hung.id]
        assert connected.bootstrap_servers == ",".join(others)
        connected.restart_broker(hung.id, timeout_seconds=RESTART_SECONDS)
    back = cluster.status()[1]
    assert (back.state, back.port) == ("running", hung.port)
    assert back.pid != hung.pid
