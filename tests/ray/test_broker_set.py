"""A cluster grows, moves partitions and shrinks under load, and starts again with the same brokers and records."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

import raylog
from raylog.cli import reassign
from raylog.cli.main import main
from raylog.client import reassignments
from raylog.client.reassignment_plan import spread
from tests.compat.topics import create_topic
from tests.ray.clients import read
from tests.ray.test_three_brokers import TOPIC, PartitionLoad, until_more
from tests.support.environment import WITHOUT_COORDINATORS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

Result = TypeVar("Result")
NAME = "changing"
PARTITIONS = 3
CONFIG = {"min.insync.replicas": 2, "default.replication.factor": 2}


def during(loads: list[PartitionLoad], do: Callable[[], Result]) -> Result:
    """`do`, while all of `loads` work; after it something is acknowledged to each."""
    with ThreadPoolExecutor(1) as thread:
        doing = thread.submit(do)
        while not doing.done():
            for load in loads:
                load.work()
        until_more(loads, loads, 100)
        return doing.result()


def spread_over(client: raylog.AdminClient, broker_ids: list[int]) -> None:
    present = reassignments.present_plan(client, [TOPIC])
    plan = spread(present, dict.fromkeys(broker_ids))
    reassign.begin(client, present, plan, throttle=None)
    reassign.wait_until_complete(client, plan)


def held_by(client: raylog.AdminClient, broker_id: int) -> int:
    return sum(broker_id in replicas for replicas in reassignments.present_plan(client, None).values())


def test_brokers_are_added_and_removed_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir = str(tmp_path / "data")
    with raylog.start(NAME, data_dir=data_dir, brokers=2, config=CONFIG, **WITHOUT_COORDINATORS) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, replication_factor=2)
        loads = [PartitionLoad(cluster.bootstrap_servers, number) for number in range(PARTITIONS)]
        until_more(loads, loads, 100)
        [added] = during(loads, raylog.connect(NAME).add_brokers)
        assert (added.id, added.state, cluster.broker_ids) == (2, "running", [0, 1, 2])
        with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            broker = raylog.ConfigResource(raylog.ConfigResourceType.BROKER, "2")
            assert client.describe_configs(broker)[broker]["min.insync.replicas"].value == "2"
            during(loads, lambda: spread_over(client, cluster.broker_ids))
            assert held_by(client, 2) == 2
            with pytest.raises(raylog.KafkaError, match=r"INVALID_REQUEST: broker 0 still has 2 replica\(s\)"):
                cluster.remove_broker(0)
        servers = f"{added.host}:{added.port}"
        capsys.readouterr()
        command = ["brokers", "decommission", "0", "--name", NAME, "--bootstrap-server", servers]
        assert during(loads, lambda: main(command)) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "Moving 2 partition(s) off broker 0."
        assert said[1].startswith(f"Removed broker 0. Its directory is kept: {data_dir}/broker-0 on ")
        assert [(broker.id, broker.state) for broker in cluster.status()] == [(1, "running"), (2, "running")]
        with raylog.AdminClient(bootstrap_servers=servers) as client:
            assert [node.node_id for node in client.describe_cluster(include_fenced_brokers=True).nodes] == [1, 2]
        for load in loads:
            load.finish()
    with raylog.start(NAME, data_dir=data_dir, config=CONFIG) as cluster:
        assert [broker.id for broker in cluster.status()] == [1, 2]
        for load in loads:
            assert read(cluster.bootstrap_servers, TOPIC, load.partition) == load.ledger
