"""`raylog brokers add`, `restart` and `remove` change a cluster found by its name, and refuse unsafe changes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import raylog
from raylog.actors.broker_set import changing
from raylog.cli.main import main
from raylog.client import reassignments
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.topics import NewTopic
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from tests.cli.conftest import Result
from tests.support.cluster_thread import cluster_thread
from tests.support.ports import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "cli-broker-set"


class Command:
    """`raylog brokers ...` of the cluster."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str, name: str = NAME) -> Result:
        self._capfd.readouterr()
        try:
            code = main(["brokers", *arguments, "--name", name])
        except SystemExit as usage:
            code = int(usage.code or 0)
        return Result(code, *self._capfd.readouterr())


@pytest.fixture
def brokers(capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(capfd)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """With free ones on both sides."""
    _, port, _ = free_ports(3)
    with socket.create_server(("127.0.0.1", port)):
        yield port


def test_a_cluster_grows_restarts_and_shrinks(brokers: Command, taken_port: int, tmp_path: Path) -> None:
    with raylog.start(NAME, data_dir=str(tmp_path), port=taken_port - 1) as cluster:
        failed = brokers("add")
        assert (failed.code, failed.out) == (1, "")
        assert f"cannot listen on PLAINTEXT://127.0.0.1:{taken_port}" in failed.err
        assert cluster.broker_ids == [0]
        with changing(NAME):
            assert "brokers of this cluster are being added, removed or restarted already" in brokers("add").err
        added = brokers("add", "--json")
        assert json.loads(added.out) == [{"id": 2, "host": "127.0.0.1", "port": taken_port + 1}]
        assert cluster.broker_ids == [0, 2]

        for arguments, code in (
            (("restart",), 2),
            (("restart", "0", "--all"), 2),
            (("restart", "2", "1"), 1),
            (("restart", "2", "--config", "num.partitions=2"), 2),
            (("restart", "2", "--no-secure"), 2),
            (("restart", "--all", "--config", "ssl.key.password=hunter2"), 1),
            (("remove", "1"), 1),
            (("add", "--count", "0"), 2),
        ):
            refused = brokers(*arguments)
            assert (refused.code, refused.out) == (code, "")
        for action in (("add",), ("restart", "--all"), ("remove", "0")):
            assert "no cluster with this name" in brokers(*action, name="nowhere").err

        before = {broker.id: broker.pid for broker in cluster.status()}
        said = brokers("restart", "2").out.splitlines()
        assert [line.rpartition(" after ")[0] or line.split(",")[0] for line in said] == [
            "Restarting broker 2",
            "Broker 2 is in sync",
        ]
        after = {broker.id: broker.pid for broker in cluster.status()}
        assert [number for number in before if before[number] != after[number]] == [2]

        servers = cluster.bootstrap_servers
        (tmp_path / "new.properties").write_text("num.partitions=3\nbroker.rack=east\n")
        new = ("--config-file", str(tmp_path / "new.properties"), "--broker-config", "2:broker.rack=west")
        said = brokers("restart", "--all", *new).out.splitlines()
        assert [line for line in said if line.startswith("Restarting")] == [
            "Restarting broker 0, 1 of 3.",
            "Restarting broker 2, 2 of 3.",
            "Restarting controller 0, 3 of 3.",
        ]
        assert not {*before.values(), *after.values()} & {broker.pid for broker in cluster.status()}
        with AdminClient(bootstrap_servers=servers) as client:
            assert [node.rack for node in client.describe_cluster().nodes] == ["east", "west"]
            client.create_topics(NewTopic("t", 2))
            held = [tp for tp, replicas in reassignments.present_plan(client, None).items() if replicas == (2,)]
            assert held in ([TopicPartition("t", 0)], [TopicPartition("t", 1)])
            refused = brokers("remove", "2")
            assert (
                refused.err == f"raylog: INVALID_REQUEST: broker 2 still has 1 replica(s), such as one of {held[0]}\n"
            )
            assert [broker.pid for broker in cluster.status()].count(0) == 0
            client.delete_topics("t")
        removed = brokers("remove", "2")
        assert (removed.code, removed.err) == (0, "")
        assert removed.out.startswith(f"Removed broker 2. Its directory is kept: {tmp_path}/broker-2 on ")
        assert (tmp_path / "broker-2" / "meta.properties").exists()
        assert "BROKER_ID_NOT_REGISTERED: cluster" in brokers("remove", "2").err
        assert "INVALID_REQUEST: broker 0 is the last" in brokers("remove", "0").err
        assert cluster.broker_ids == [0]


def test_brokers_of_another_cluster_are_refused(brokers: Command, tmp_path: Path) -> None:
    with raylog.start(NAME), cluster_thread({}, tmp_path / "other", brokers=2) as other:
        servers = ("--bootstrap-server", other.bootstrap_servers)
        assert "is another cluster than that of the bootstrap servers" in brokers("decommission", "0", *servers).err
        assert "no cluster with this name" in brokers("decommission", "0", *servers, name="nowhere").err
        assert [broker.id for broker in raylog.connect(NAME).status()] == [0]


def test_a_configuration_with_which_no_broker_starts_is_replaced_by_another(
    brokers: Command, taken_port: int, tmp_path: Path
) -> None:
    with raylog.start(NAME, data_dir=str(tmp_path)):
        refused = brokers("restart", "--all", "--config", f"listeners=PLAINTEXT://127.0.0.1:{taken_port}")
        assert (refused.code, refused.out) == (1, "Restarting broker 0, 1 of 2.\n")
        with pytest.raises(KafkaError, match="no broker is running"):
            raylog.connect(NAME)
        done = brokers("restart", "--all", "--config", f"listeners=PLAINTEXT://127.0.0.1:{taken_port + 1}", "--json")
        assert (done.code, done.out) == (0, '{"restarted": [0]}\n')
        assert raylog.connect(NAME).bootstrap_servers == f"127.0.0.1:{taken_port + 1}"
