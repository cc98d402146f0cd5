"""Apache Kafka's producer uses transactions of version 2, and its tools find and end those that hang."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.cluster import FeatureUpdate, UpgradeType
from raylog.client.admin.topics import NewTopic
from raylog.core.ids import TopicPartition
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, connect_tcp
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka

CONFIG = {"transaction.partition.verification.enable": "false"}
"""A batch of version 1 that no coordinator knows can be written, and hangs."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path / "raylog", brokers=1) as running:
        yield running


@pytest.fixture
def admin(cluster: RunningCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic("t", 2, 1)])
        yield admin


def transactions(cluster: RunningCluster, *arguments: str) -> str:
    servers = cluster.bootstrap_servers
    return java("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", servers, *arguments)


def produce(cluster: RunningCluster, transactional_id: str) -> None:
    """Some transactions of Apache's producer, of some milliseconds each."""
    java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "t", "--num-records", "2000", "--record-size", "10", "--throughput", "2000"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}"),
    )


def test_the_java_producer_takes_the_version_of_the_cluster(cluster: RunningCluster, admin: AdminClient) -> None:
    produce(cluster, "two")
    found = admin.describe_transactions("two")["two"]
    assert found.producer_epoch > 5, "one for each transaction"
    admin.update_features({"transaction.version": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)})
    produce(cluster, "one")
    assert admin.describe_transactions("one")["one"].producer_epoch == 0
    assert "two" in transactions(cluster, "list", "--transactional-id-pattern", "t.o")
    assert "one" not in transactions(cluster, "list", "--transactional-id-pattern", "t.o")


def test_a_hanging_transaction_is_found_and_ended(cluster: RunningCluster, admin: AdminClient) -> None:
    record = NewRecord(None, b"hangs", 1_700_000_000_000)
    batch = build_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    part = ProducePartition(index=0, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id="x", acks=-1, timeout_ms=1000, topics=[ProduceTopic(name="t", partitions=[part])]
    )
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    connection = BlockingConnection(connect_tcp(host, int(port)), client_id="test")
    written = connection.call(request, version_max=11)
    connection.close()
    assert not written.responses[0].partitions[0].error_code
    shown = transactions(cluster, "find-hanging", "--topic", "t", "--max-transaction-timeout", "0")
    assert re.search(r"^t\s+0\s+7\s+0\s", shown, re.MULTILINE), shown
    transactions(cluster, "abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
    [state] = admin.describe_producers([TopicPartition("t", 0)])[TopicPartition("t", 0)]
    assert state.current_txn_start_offset is None
    shown = transactions(cluster, "find-hanging", "--topic", "t", "--max-transaction-timeout", "0")
    assert not re.search(r"^t\s+0\s+7\s", shown, re.MULTILINE), shown
