"""kafka-python, the only stock client that requests them, describes log directories and moves replicas between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import LogDirNotFoundError, NoError

from tests.compat.confluent import Confluent
from tests.compat.row import Row
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import wait_until

pytestmark = pytest.mark.compat


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def test_sizes_of_a_topic_on_every_broker(admin: Any, bootstrap_servers: str, cluster: RunningCluster) -> None:
    create_topic(bootstrap_servers, "measured", partitions=3)
    Confluent(bootstrap_servers).produce("measured", 2, [Row(2, 0, None, b"hello" * 100)], "none")
    seen = {}
    for broker in admin.describe_log_dirs(["measured"]):
        (found,) = broker["log_dirs"]
        for topic in found["topics"]:
            for partition in topic["partitions"]:
                seen[topic["name"], partition["partition_index"]] = (found["log_dir"], partition["partition_size"])
                assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)
    paths = [cluster.partition_path("measured", number) for number in range(3)]
    sizes = [(path / "00000000000000000000.log").stat().st_size for path in paths]
    assert seen == {
        ("measured", number): (str(path.parent), size)
        for number, (path, size) in enumerate(zip(paths, sizes, strict=True))
    }
    assert sizes[2] > 500


def test_everything_on_one_broker(admin: Any, bootstrap_servers: str, cluster: RunningCluster) -> None:
    create_topic(bootstrap_servers, "spread", partitions=3)
    (broker,) = admin.describe_log_dirs(brokers=[1])
    (found,) = broker["log_dirs"]
    held = {f"{topic['name']}-{each['partition_index']}" for topic in found["topics"] for each in topic["partitions"]}
    directories = {path.name for path in (cluster.path / "broker-1").iterdir() if path.is_dir()}
    assert held == {name for name in directories if not name.endswith("-delete")}


def replicas(admin: Any, topic: str) -> dict[int, str]:
    """The directory of each partition, of which there are no copies that are not complete."""
    [broker] = admin.describe_log_dirs([topic])
    found = {}
    for directory in broker["log_dirs"]:
        for each in (each for listed in directory["topics"] for each in listed["partitions"]):
            if each["is_future_key"]:
                return {}
            found[each["partition_index"]] = directory["log_dir"]
    return found


def test_replicas_are_moved_between_three_directories(tmp_path: Path) -> None:
    directories = [tmp_path / f"disk-{number}" for number in range(3)]
    for path in directories:
        path.mkdir()
    names = sorted(map(str, directories))
    with cluster_thread({"log.dirs": ",".join(names)}, tmp_path) as cluster:
        create_topic(cluster.bootstrap_servers, "moved", partitions=3)
        client = Confluent(cluster.bootstrap_servers)
        client.produce("moved", 0, [Row(0, 0, None, b"before")], "none")
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        try:
            placed = replicas(admin, "moved")
            assert sorted(placed.values()) == names, "one in each"
            target = placed[1]
            wanted = {("moved", 0, 0): target, ("moved", 2, 0): str(tmp_path / "none")}
            answers = {each.partition: error for each, error in admin.alter_replica_log_dirs(wanted).items()}
            assert answers == {0: NoError, 2: LogDirNotFoundError}
            wait_until(lambda: replicas(admin, "moved") == {**placed, 0: target}, lambda: str(replicas(admin, "moved")))
        finally:
            admin.close()
        client.produce("moved", 0, [Row(0, 1, None, b"after")], "none")
        assert [row.value for row in client.consume("moved", 3)] == [b"before", b"after"]
