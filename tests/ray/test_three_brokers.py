"""With three brokers and a controller, a killed process affects its own partitions only and restarts by itself."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

import raylog
from raylog.actors.cluster import cluster_status
from raylog.cli.main import main
from tests.compat.topics import create_topic
from tests.ray.clients import read, topics_of
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.hang import HANG_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "three"
TOPIC = "spread"
PARTITIONS = 6
MORE = 500
"""Records of each partition that must be acknowledged while somebody is away, and after."""
RECORDS_PER_SECOND = 500
"""Of each load: little, so that the machine has time for what is started again. `burst` gives more at once."""
OUTSTANDING_MAX = 500


class PartitionLoad:
    """An idempotent stock producer of one partition, and the ledger of what was acknowledged."""

    def __init__(self, bootstrap_servers: str, partition: int, **config: Any) -> None:
        self.partition = partition
        self.ledger: list[tuple[int, bytes]] = []
        self.errors: list[KafkaError] = []
        self.given = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.num.messages": 50,
                **config,
            }
        )
        self._due, self._worked = float(OUTSTANDING_MAX), time.monotonic()

    def work(self) -> None:
        """Gives the producer what is due by now. What a pause has held up comes at once, OUTSTANDING_MAX at most."""
        now = time.monotonic()
        self._due = min(self._due + (now - self._worked) * RECORDS_PER_SECOND, OUTSTANDING_MAX)
        self._worked = now
        while self._due >= 1 and len(self._producer) < OUTSTANDING_MAX:
            value = b"%d-%d" % (self.partition, self.given)
            self.given += 1
            self._due -= 1
            self._producer.produce(TOPIC, value, partition=self.partition, on_delivery=self._delivered)
        self._producer.poll(0.001)

    def burst(self) -> None:
        """As much as may be outstanding comes with the next `work`."""
        self._due = float(OUTSTANDING_MAX)

    def finish(self) -> None:
        assert self._producer.flush(HANG_SECONDS) == 0
        assert self.errors == []
        assert [value for _, value in self.ledger] == [b"%d-%d" % (self.partition, n) for n in range(self.given)]
        del self._producer

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        self.ledger.append((offset, value))


def until_more(loads: list[PartitionLoad], watched: list[PartitionLoad], more: int = MORE) -> None:
    """All of `loads` work until each of `watched` has so many more acknowledged."""
    goals = {load: len(load.ledger) + more for load in watched}
    deadline = time.monotonic() + HANG_SECONDS
    while any(len(load.ledger) < goal for load, goal in goals.items()):
        assert time.monotonic() < deadline, {load.partition: len(load.ledger) for load in watched}
        for load in loads:
            load.work()


def until_in_the_middle_of_a_burst(loads: list[PartitionLoad]) -> None:
    """Each has given as much as it may, and the first answer has come: the rest is on its way through the brokers."""
    for load in loads:
        load.burst()
    until_more(loads, loads[:1], 1)


@pytest.fixture(scope="module")
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    with raylog.start(NAME, brokers=3, **WITHOUT_COORDINATORS) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        yield cluster


@pytest.fixture(scope="module")
def loads(cluster: raylog.Cluster) -> Iterator[list[PartitionLoad]]:
    """One for each partition; in the end everything acknowledged is there once, in its order."""
    loads = [PartitionLoad(cluster.bootstrap_servers, partition) for partition in range(PARTITIONS)]
    until_more(loads, loads, 100)
    yield loads
    for load in loads:
        load.finish()
        assert read(cluster.bootstrap_servers, TOPIC, load.partition) == load.ledger


def wait_until_all_run(gone_pid: int, name: str = NAME) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        status = cluster_status(name)
        pids = [broker.pid for broker in status.brokers] + [controller.pid for controller in status.controllers]
        running = all(broker.state == "running" for broker in status.brokers)
        decides = any(controller.active for controller in status.controllers)
        if running and decides and 0 not in pids and gone_pid not in pids:
            return
        assert time.monotonic() < deadline, status
        time.sleep(0.05)


def test_events_and_logs_of_all_nodes_are_shown(cluster: raylog.Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {"broker-0", "broker-1", "broker-2", "controller-0"}
    shown: dict[str, dict[str, Any]] = {}
    for command in ("events", "logs"):
        assert main([command, "--name", NAME, "--json"]) == 0
        shown[command] = json.loads(capsys.readouterr().out)
        assert set(shown[command]) == nodes
    assert any(event["event"] == "partition led" for event in shown["events"]["broker-0"])
    for node, tail in shown["logs"].items():
        assert tail["lines"], node
        assert Path(tail["path"]).read_text().splitlines()[: len(tail["lines"])], node
    assert main(["logs", "--name", NAME, "--node", "broker-1", "--lines", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["logs", "--name", NAME, "--node", "broker-9"]) == 1
    assert "the cluster has broker-0, broker-1, broker-2, controller-0" in capsys.readouterr().err


@pytest.mark.parametrize("broker_id", range(3))
def test_a_killed_broker_affects_its_own_partitions_only(
    cluster: raylog.Cluster, loads: list[PartitionLoad], broker_id: int
) -> None:
    """It is stopped first, so that it is certainly away while the others have to go on."""
    pid = cluster.status()[broker_id].pid
    others = [load for load in loads if load.partition % 3 != broker_id]
    os.kill(pid, signal.SIGSTOP)
    until_more(loads, others)
    os.kill(pid, signal.SIGKILL)
    until_more(loads, others)
    until_more(loads, loads)
    wait_until_all_run(pid)


def test_a_killed_controller_affects_no_client(cluster: raylog.Cluster, loads: list[PartitionLoad]) -> None:
    pid = cluster_status(NAME).controllers[0].pid
    os.kill(pid, signal.SIGSTOP)
    until_more(loads, loads)
    os.kill(pid, signal.SIGKILL)
    until_more(loads, loads)
    wait_until_all_run(pid)
    create_topic(cluster.bootstrap_servers, "after-the-controller", partitions=3)
    for server in cluster.bootstrap_servers.split(","):  # the other brokers get the change a moment later
        deadline = time.monotonic() + HANG_SECONDS
        while "after-the-controller" not in topics_of(server):
            assert time.monotonic() < deadline, server
            time.sleep(0.05)
