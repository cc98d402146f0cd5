"""What raylog's commands did is what Apache Kafka's tools find, and the reverse."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import raylog
from raylog.cli.main import main
from raylog.client.admin.topics import NewTopic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.kafka_peer import java, java_command

pytestmark = pytest.mark.kafka
GROUP = "packers"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
EARLIEST = "-2"
REPLICA_VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"

Command = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {
        "num.partitions": 1,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.heartbeat.interval.ms": 100,
        "share.coordinator.state.topic.num.partitions": 1,
    }
    with cluster_thread(config, tmp_path_factory.mktemp("commands"), brokers=2) as running:
        yield running


@pytest.fixture
def command(cluster: RunningCluster, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs `raylog ...`, which is to succeed, and returns what it printed."""

    def run(*arguments: str, code: int = 0) -> str:
        found = main([*arguments, "--bootstrap-server", cluster.bootstrap_servers])
        printed = capfd.readouterr()
        assert found == code, printed.err
        return printed.out

    return run


def values_of(shown: str) -> list[str]:
    return [json.loads(line)["value"] for line in shown.splitlines()]


def test_a_record_of_a_share_group_is_given_to_one_of_both_consumers(cluster: RunningCluster, command: Command) -> None:
    """What one accepted or rejected, the other does not get; what one released, the other gets."""
    topic = "parcels"
    command("topics", "create", topic)
    command("configs", "alter", "--group", GROUP, "--add", "share.auto.offset.reset=earliest")
    with raylog.Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(10):  # one by one: a batch is acquired as a whole
            producer.send(topic, str(number)).result()
    ours = ("share-consume", topic, "--group", GROUP, "--json")

    def kafkas(count: int, *options: str) -> list[str]:
        where = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group", GROUP)
        shown = java(SHARE_CONSUMER, *where, "--max-messages", str(count), "--timeout-ms", "30000", *options)
        return [line for line in shown.splitlines() if line.isdigit()]  # it shows its configuration too

    assert values_of(command(*ours, "--max-messages", "2")) == ["0", "1"]
    assert values_of(command(*ours, "--max-messages", "2", "--acknowledge", "release")) == ["2", "3"]
    assert kafkas(3) == ["2", "3", "4"]
    assert values_of(command(*ours, "--max-messages", "1", "--acknowledge", "reject")) == ["5"]
    assert kafkas(2, "--release") == ["6", "7"]
    assert values_of(command(*ours, "--max-messages", "4")) == ["6", "7", "8", "9"]
    assert command(*ours, "--timeout-ms", "500") == ""


@contextmanager
def kafkas_verification(cluster: RunningCluster, topic: str) -> Iterator[Callable[[str], str]]:
    """Kafka's tool, which compares until it is killed; the function returns its next line that contains a text."""
    which = ("--broker-list", cluster.bootstrap_servers, "--topics-include", topic, "--time", EARLIEST)
    command = java_command(REPLICA_VERIFICATION, *which, "--report-interval-ms", "200")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines, hang = iter(process.stdout), threading.Timer(HANG_SECONDS, process.kill)
    hang.start()

    def line_with(text: str) -> str:
        shown = []
        for line in lines:
            shown.append(line)
            if text in line:
                return line
        raise AssertionError("".join(shown))

    try:
        yield line_with
    finally:
        hang.cancel()
        process.kill()
        process.communicate()


def test_both_find_the_same_replica(cluster: RunningCluster, command: Command) -> None:
    """Equal replicas, and then one with another batch at the same offset."""
    topic = "compared"
    with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(topic, replica_assignments={0: [0, 1]}))
    with raylog.Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
        for number in range(3):
            producer.send(topic, f"value {number}").result()
    deadline = time.monotonic() + HANG_SECONDS
    while json.loads(command("verify-replicas", topic, "--json"))[0]["behind"]:
        assert time.monotonic() < deadline
    with kafkas_verification(cluster, topic) as line_with:
        assert "max lag is 0 for partition compared-0 at offset 3 among 1 partitions" in line_with("max lag is")

    (path,) = (each for each in cluster.path.rglob(f"{topic}-0/*.log") if "1" in each.parent.parent.name)
    replace_second_batch(path)
    found = json.loads(command("verify-replicas", topic, "--json", code=1))[0]
    assert found["problems"] == {"1": "offset 1: the batch differs from the leader's"}
    with kafkas_verification(cluster, topic) as line_with:
        assert "partition compared-0 has unmatched checksum at offset 1" in line_with("unmatched")


def replace_second_batch(path: Path) -> None:
    """By the first of three, but for its offset."""
    data = path.read_bytes()
    third = len(data) // 3
    assert len(data) == 3 * third
    with path.open("r+b") as file:
        file.seek(third + 8)
        file.write(data[8:third])
