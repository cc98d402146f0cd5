"""One cluster of processes for all faults, and a topic with acknowledged load for each test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.topics import create_topic
from tests.operators.load import PARTITIONS
from tests.support.faulty_calls import FaultyCalls, build, why_no_faulty_calls
from tests.support.hang import HANG_SECONDS
from tests.support.node_cluster import COUNT, NODES, NodeCluster

TOPIC_CONFIG = {
    "segment.bytes": str(1 << 20),  # several segments in each test
    "flush.ms": "1000",  # so that a failing disk shows itself
    "message.timestamp.after.max.ms": str((1 << 63) - 1),  # a broker whose clock is late would refuse records
}
_topics = count()


@dataclass
class Site:
    """A cluster, and what can be done to its nodes."""

    cluster: NodeCluster
    calls: dict[str, FaultyCalls]

    def new_topic(self) -> str:
        """A topic of its own for each test, in a cluster that is healthy, whatever a failed test has left."""
        for calls in self.calls.values():
            calls.set()
        self.cluster.restart_ended()
        name = f"load-{next(_topics)}"
        create_topic(
            self.cluster.bootstrap_servers,
            name,
            partitions=PARTITIONS,
            replication_factor=COUNT,
            configs=TOPIC_CONFIG,
        )
        self.cluster.wait_until_healthy(name)
        return name

    def delete_topic(self, topic: str) -> None:
        """So that hours of tests do not fill the disk."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(HANG_SECONDS)


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("operators")
    calls: dict[str, FaultyCalls] = {}
    if not why_no_faulty_calls():
        library = build(path)
        calls = {name: FaultyCalls(library, path / f"{name}.calls") for name in NODES}
    cluster = NodeCluster(path, environments={name: each.environment for name, each in calls.items()})
    yield Site(cluster, calls)
    cluster.kill()
