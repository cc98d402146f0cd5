"""`raylog brokers` lists the brokers, and removes one once it holds no replicas."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster, cluster_thread

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    config = {
        "default.replication.factor": 2,
        "num.partitions": 3,
        "broker.heartbeat.interval.ms": 100,
        "broker.session.timeout.ms": 2000,
    }
    with cluster_thread(config, tmp_path, brokers=4) as running:
        yield running


@pytest.fixture
def records(cli: Cli, topic: str) -> None:
    """One in each of three partitions, of which every broker alive holds some."""
    assert cli("topics", "create", topic).code == 0
    for number in range(3):
        assert cli("produce", topic, "--partition", str(number), stdin=b"x\n").code == 0


def fall_silent(cluster: RunningCluster, broker_id: int) -> None:
    """As far as the controller can see, the broker is stopped."""
    cluster.do(lambda: cluster.brokers[broker_id].lifecycle.start({}))


def listed(cli: Cli) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in json.loads(cli("brokers", "list", "--json").out)}


def test_a_broker_is_decommissioned_and_unregistered(
    cli: Cli, cluster: RunningCluster, topic: str, records: None
) -> None:
    before = listed(cli)
    assert sum(one["replicas"] for one in before.values()) == 6
    assert sum(one["leaders"] for one in before.values()) == 3
    assert {number: f"{one['host']}:{one['port']}" for number, one in before.items()} == cluster.servers
    count = before[3]["replicas"]
    refused = cli("brokers", "unregister", "3")
    assert refused.err.startswith(f"raylog: INVALID_REQUEST: broker 3 still has {count} replica(s), such as one of ")
    plan = json.loads(cli("brokers", "decommission", "3", "--dry-run").out)
    assert len(plan["partitions"]) == count
    assert all(3 not in entry["replicas"] for entry in plan["partitions"])
    assert listed(cli) == before
    done = cli("brokers", "decommission", "3", "--throttle", "1000000")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"Moving {count} partition(s) off broker 3.",
        "Broker 3 holds no replicas. Stop it, then unregister it.",
    ]
    assert (listed(cli)[3]["replicas"], listed(cli)[3]["fenced"]) == (0, False)
    for which in (("--topic", topic), ("--broker", "0"), ("--broker", "1")):
        assert cli("configs", "describe", *which).out == "No values are set.\n", "the throttle is lifted"
    assert cli("brokers", "unregister", "3").err.startswith("raylog: INVALID_REQUEST: broker 3: Broker 3 is alive")
    threading.Timer(0.5, fall_silent, (cluster, 3)).start()
    waited = cli("brokers", "decommission", "3", "--wait-until-stopped")
    assert waited.out.splitlines()[-1] == "Unregistered broker 3."
    assert sorted(listed(cli)) == [0, 1, 2]
    lines = cli("brokers", "list").out.splitlines()
    assert lines[0].split() == ["BROKER", "LISTENS", "ON", "RACK", "STATE", "REPLICAS", "LEADERS", "ROLE"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    read = cli("consume", topic, "--offset", "earliest", "--exit-at-end")
    assert read.out.splitlines() == ["x"] * 3


def test_unknown_brokers_and_too_few_remaining_brokers_are_refused(
    cli: Cli, cluster: RunningCluster, topic: str
) -> None:
    for arguments, code in (
        (("decommission", "7"), "BROKER_ID_NOT_REGISTERED"),
        (("unregister", "7"), "BROKER_ID_NOT_REGISTERED"),
        (("unregister", "7", "--force"), "BROKER_ID_NOT_REGISTERED"),
    ):
        refused = cli("brokers", *arguments)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith(f"raylog: {code}: ")
    assert cli("topics", "create", topic, "--replication-factor", "4").code == 0
    refused = cli("brokers", "decommission", "2")
    assert refused.err.startswith("raylog: INVALID_REPLICATION_FACTOR: ")
    assert cli("brokers", "decommission").code == 2


def test_a_broker_that_will_not_return_is_unregistered_with_its_replicas(
    cli: Cli, cluster: RunningCluster, topic: str, records: None
) -> None:
    fall_silent(cluster, 2)
    deadline = time.monotonic() + 20
    while not listed(cli)[2]["fenced"]:
        assert time.monotonic() < deadline
    assert "fenced" in cli("brokers", "list").out.splitlines()[3]
    assert cli("brokers", "unregister", "2").err.startswith("raylog: INVALID_REQUEST: broker 2 still has ")
    assert cli("brokers", "unregister", "2", "--force").out == "Unregistered broker 2.\n"
    assert sorted(listed(cli)) == [0, 1, 3]
