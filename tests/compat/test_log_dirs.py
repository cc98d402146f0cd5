"""kafka-python, the only stock client that requests them, describes the log directories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient

from tests.compat.confluent import Confluent
from tests.compat.row import Row
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

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
