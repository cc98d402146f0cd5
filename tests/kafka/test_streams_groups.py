"""Kafka's own code judges streams groups: its records have our bytes, and its tool lists and describes them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.history import create_topic
from tests.support.hang import wait_until
from tests.support.java_process import JavaProcess, killed_at_the_end, write_properties
from tests.support.kafka_peer import NEWER_KAFKA_VERSION, class_path, java_command
from tests.support.node_cluster import NodeCluster

pytestmark = pytest.mark.kafka

SOURCES = Path(__file__).parent / "streams"
GOLDEN = Path(__file__).parent.parent / "golden" / "streams-records.txt"
APPLICATION = "counter"
TOPICS = ("lines", "orders", "customers", "counts", "enriched", "sums")
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"


def test_records_have_kafkas_bytes() -> None:
    """tests/groupcoord/test_streams_records.py holds our code against the file."""
    command = ["java", "-cp", class_path(NEWER_KAFKA_VERSION), str(SOURCES / "StreamsRecords.java")]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert printed == GOLDEN.read_text()


@pytest.fixture
def application(cluster: NodeCluster, tmp_path: Path) -> Iterator[JavaProcess]:
    """It has all its tasks."""
    for topic in TOPICS:
        create_topic(cluster, topic, partitions=2, replication_factor=3)
    classes = tmp_path / "classes"
    newer = class_path(NEWER_KAFKA_VERSION)
    subprocess.run(["javac", "-d", classes, "-cp", newer, SOURCES / "StreamsApplication.java"], check=True)
    properties = {
        "application.id": APPLICATION,
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.protocol": "streams",
        "state.dir": tmp_path / "state",
        "processing.guarantee": "at_least_once",
        "commit.interval.ms": 200,
    }
    file = write_properties(tmp_path / "application.properties", properties)
    made = JavaProcess(
        tmp_path / "instance", "StreamsApplication", file, class_paths=[str(classes)], version=NEWER_KAFKA_VERSION
    )
    with killed_at_the_end([made]):
        made.start()
        wait_until(lambda: "state RUNNING" in made.log(), made.log)
        yield made


def run(cluster: NodeCluster, *arguments: str) -> str:
    """What Kafka's tool for streams groups prints."""
    command = java_command(
        TOOL, "--bootstrap-server", cluster.bootstrap_servers, *arguments, version=NEWER_KAFKA_VERSION
    )
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def rows(printed: str, first: str) -> list[list[str]]:
    """The words of the lines that begin with `first`."""
    return [line.split() for line in printed.splitlines() if line.split()[:1] == [first]]


def test_kafkas_tool(cluster: NodeCluster, application: JavaProcess) -> None:
    assert APPLICATION in run(cluster, "--list").split()
    of_group = ("--group", APPLICATION)
    wait_until(lambda: "Stable" in run(cluster, "--describe", *of_group, "--state"), application.log, pause=1)
    ((_, *state),) = rows(run(cluster, "--describe", *of_group, "--state"), APPLICATION)
    assert "Stable" in state
    assert state[-1] == "1", "one member"
    members = run(cluster, "--describe", *of_group, "--members", "--verbose")
    (member,) = rows(members, APPLICATION)
    assert {f"{number}:" for number in range(4)} & {word[:2] for word in member}, members
    assert {row[1] for row in rows(run(cluster, "--describe", *of_group), APPLICATION)} >= {"lines", "orders"}
    application.stop()
    wait_until(lambda: "Empty" in run(cluster, "--describe", *of_group, "--state"), application.log, pause=1)
    run(cluster, "--reset-offsets", *of_group, "--to-earliest", "--execute", "--all-input-topics")
    run(cluster, "--delete-offsets", *of_group, "--input-topic", "orders")
    described = rows(run(cluster, "--describe", *of_group), APPLICATION)
    assert "orders" not in {row[1] for row in described}
    run(cluster, "--delete", *of_group)
    assert APPLICATION not in run(cluster, "--list").split()
