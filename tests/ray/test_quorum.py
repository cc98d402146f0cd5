"""Controllers of a running cluster are added, removed and replaced, under load."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import ray

import raylog
from raylog.actors.cluster_actors import current_handles
from raylog.actors.names import controller_name
from raylog.cli.main import main
from raylog.metadata.voters import FIRST_VOTER_ID
from tests.compat.topics import create_topic
from tests.ray.test_broker_set import during
from tests.ray.test_three_brokers import TOPIC, PartitionLoad, until_more
from tests.support.forms import by_form

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "quorum"
AT_MOST = by_form(2, long=5)
"""Voters at the same time: 1 -> 2 -> 1, in the long form 1 -> 3 -> 5 -> 3."""
AT_LAST = by_form(1, long=3)


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def voters(client: raylog.AdminClient) -> list[int]:
    return sorted(each.replica_id for each in client.describe_metadata_quorum().voters)


def create(client: raylog.AdminClient, topic: str) -> None:
    client.create_topics(topic)
    assert topic in {each.name for each in client.list_topics()}


def test_controllers_are_added_and_removed(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    with raylog.start(NAME, data_dir=data_dir) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=1, replication_factor=1)
        loads = [PartitionLoad(cluster.bootstrap_servers, 0)]
        until_more(loads, loads, 50)
        with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            with pytest.raises(raylog.KafkaError, match=r"UNSUPPORTED_VERSION: kraft\.version is 0"):
                cluster.add_controllers()
            client.update_features({"kraft.version": 1})
            capsys.readouterr()
            assert during(loads, lambda: main(["quorum", "add", "--name", NAME])) == 0
            said = capsys.readouterr().out.splitlines()  # Ray may have said something too
            assert said[-1] == "Started controller 1001, which is a voter."
            during(loads, lambda: cluster.add_controllers(AT_MOST - 2) if AT_MOST > 2 else None)
            there = list(range(FIRST_VOTER_ID, FIRST_VOTER_ID + AT_MOST))
            assert voters(client) == there
            create(client, "with-all")
            leaders = set()
            while len(there) > AT_LAST:
                leader = client.describe_metadata_quorum().leader_id
                leaders.add(leader)
                command = ["quorum", "remove", str(leader), "--name", NAME]
                assert during(loads, lambda command=command: main(command)) == 0  # type: ignore[misc]
                there.remove(leader)
                assert voters(client) == there
                create(client, f"without-{leader}")
            assert FIRST_VOTER_ID in leaders, "the controller that the cluster began with"
            if len(there) > 2:
                _replace_disk(cluster, client, data_dir, loads)
            there = voters(client)
        for load in loads:
            load.finish()
    with (
        raylog.start(NAME, data_dir=data_dir) as cluster,
        raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as client,
    ):
        assert voters(client) == there
        create(client, "after-a-restart")
        assert {"with-all", f"without-{FIRST_VOTER_ID}"} <= {each.name for each in client.list_topics()}


def _replace_disk(
    cluster: raylog.Cluster, client: raylog.AdminClient, data_dir: str, loads: list[PartitionLoad]
) -> None:
    """A standby loses its directory and its process: it is removed, and another one takes its place."""
    lost = next(each for each in voters(client) if each != client.describe_metadata_quorum().leader_id)
    node = controller_name(lost - FIRST_VOTER_ID)
    shutil.rmtree(Path(data_dir) / node)
    ray.kill(current_handles(NAME, [node])[node], no_restart=False)
    during(loads, lambda: cluster.remove_controller(lost))
    [added] = during(loads, cluster.add_controllers)
    assert lost not in voters(client)
    assert added.id in voters(client)
