"""Java's consumers of the consumer protocol and Java's share consumers belong to groups of a raylog cluster."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from raylog.client.admin.admin_client import AdminClient
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.java_process import JavaProcess, killed_at_the_end
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka

PARTITIONS = 6
RECORDS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {"group.consumer.heartbeat.interval.ms": 500, "group.consumer.min.heartbeat.interval.ms": 500}
    with cluster_thread(config, tmp_path_factory.mktemp("groups")) as running:
        yield running


def produce(servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(HANG_SECONDS) == 0


def events(process: JavaProcess, name: str) -> list[dict[str, Any]]:
    lines = (line for line in process.log().splitlines() if line.startswith('{"') and line.endswith("}"))
    return [event for event in map(json.loads, lines) if event["name"] == name]


def read_by(*processes: JavaProcess) -> Counter[str]:
    return Counter(event["value"] for each in processes for event in events(each, "record_data"))


def until_read(numbers: range, *processes: JavaProcess) -> Counter[str]:
    """Waits until they have read all of them, together."""
    wanted, deadline = set(map(str, numbers)), time.monotonic() + HANG_SECONDS
    while not wanted <= (read := read_by(*processes)).keys():
        assert time.monotonic() < deadline, f"missing: {sorted(wanted - read.keys())[:20]}"
        time.sleep(0.2)
    return read


def consumer(path: Path, cluster: RunningCluster, topic: str) -> JavaProcess:
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", topic]
    arguments += ["--group-protocol", "consumer", "--reset-policy", "earliest", "--verbose"]
    return JavaProcess(path, "org.apache.kafka.tools.VerifiableConsumer", *arguments)


def test_java_members_share_partitions_and_replace_a_dead_one(cluster: RunningCluster, tmp_path: Path) -> None:
    servers, topic = cluster.bootstrap_servers, "assigned"
    create_topic(servers, topic, partitions=PARTITIONS)
    produce(servers, topic, range(RECORDS))
    members = [consumer(tmp_path / f"member-{number}", cluster, topic) for number in range(2)]
    with killed_at_the_end(members), AdminClient(bootstrap_servers=servers) as admin:
        for each in members:
            each.start()
        until_read(range(RECORDS), *members)
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            group = admin.describe_consumer_groups(topic)[topic]
            held = sorted(len(each.partitions) for each in group.members)
            if held == [PARTITIONS // 2] * 2:
                break
            assert time.monotonic() < deadline, held
            time.sleep(0.2)
        assert group.type == "consumer"
        members[0].stop()
        produce(servers, topic, range(RECORDS, 2 * RECORDS))
        until_read(range(2 * RECORDS), *members)
        members[1].stop()
    described = java(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", servers, "--describe", "--group", topic),
    )
    lags = [line.split()[5] for line in described.splitlines() if line.startswith(topic)]
    assert lags == ["0"] * PARTITIONS, described


def test_java_share_consumers_deliver_every_record(cluster: RunningCluster, tmp_path: Path) -> None:
    servers, topic = cluster.bootstrap_servers, "shared"
    create_topic(servers, topic, partitions=PARTITIONS)
    java(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", servers, "--alter", "--group", topic),
        *("--add-config", "share.auto.offset.reset=earliest"),
    )
    produce(servers, topic, range(RECORDS))
    arguments = ("--bootstrap-server", servers, "--topic", topic, "--group-id", topic, "--verbose")
    members = [
        JavaProcess(tmp_path / f"sharer-{number}", "org.apache.kafka.tools.VerifiableShareConsumer", *arguments)
        for number in range(2)
    ]
    with killed_at_the_end(members):
        for each in members:
            each.start()
        read = until_read(range(RECORDS), *members)
        assert set(read.values()) == {1}
        for each in members:
            each.stop()
    with AdminClient(bootstrap_servers=servers) as admin:
        offsets = admin.list_share_group_offsets(topic)
        assert {each.lag for each in offsets.values() if each is not None} == {0}
    described = java(
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
        *("--bootstrap-server", servers, "--describe", "--group", topic),
    )
    starts = [line.split()[3] for line in described.splitlines() if line.startswith(topic)]
    assert starts == [str(RECORDS // PARTITIONS)] * PARTITIONS, described
