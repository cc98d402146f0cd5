"""`raylog brokers` lists the brokers, and takes one out of the cluster when it holds nothing any more."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster, cluster_thread


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {"num.partitions": 3, "default.replication.factor": 2, "offsets.topic.num.partitions": 3}
    with cluster_thread(config, tmp_path_factory.mktemp("cli-brokers"), brokers=3) as running:
        yield running


def test_a_broker_is_emptied_and_forgotten(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic)
    for number in range(3):
        assert cli("produce", topic, "--partition", str(number), stdin=b"x\n").code == 0
    before = json.loads(cli("brokers", "list", "--json").out)
    assert [(one["id"], one["fenced"], one["replicas"], one["leaders"]) for one in before] == [
        (number, False, 2, 1) for number in range(3)
    ]
    assert f"{before[0]['host']}:{before[0]['port']}" == cluster.servers[0]
    refused = cli("brokers", "unregister", "2")
    assert refused.err.startswith("raylog: INVALID_REQUEST: broker 2 still holds 2 replica(s), one of ")
    plan = json.loads(cli("brokers", "decommission", "2", "--dry-run").out)
    assert len(plan["partitions"]) == 2
    assert all(2 not in entry["replicas"] for entry in plan["partitions"])
    done = cli("brokers", "decommission", "2", "--throttle", "1000000")
    assert (done.code, done.out, done.err) == (
        *(0, "Moving 2 partition(s) off broker 2.\nUnregistered broker 2.\n", ""),
    )
    lines = cli("brokers", "list").out.splitlines()
    assert lines[0].split() == ["BROKER", "LISTENS", "ON", "RACK", "STATE", "REPLICAS", "LEADERS"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1"]
    assert all(line.split()[3:5] == ["alive", "3"] for line in lines[1:])
    for which in (("--topic", topic), ("--broker", "0"), ("--broker", "1")):
        assert cli("configs", "describe", *which).out == "nothing is set\n", "the throttle is lifted"
    read = cli("consume", topic, "--offset", "earliest", "--exit-at-end")
    assert read.out.splitlines() == ["x"] * 3
    assert cli("brokers", "decommission", "2").err.startswith("raylog: BROKER_ID_NOT_REGISTERED: ")
    assert cli("brokers", "decommission", "1").err.startswith("raylog: INVALID_REPLICATION_FACTOR: ")
    assert cli("brokers", "unregister", "7").err.startswith("raylog: BROKER_ID_NOT_REGISTERED: ")
    assert cli("brokers", "unregister", "2", "--force").err.startswith("raylog: BROKER_ID_NOT_REGISTERED: ")
