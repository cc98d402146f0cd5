"""Every stock admin client creates, describes, grows and deletes topics, and gets Kafka's error codes."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from raylog.core.errors import ErrorCode
from tests.compat.admin import ADMINS, Admin, AdminRefused
from tests.compat.confluent import Confluent
from tests.compat.row import Row
from tests.support.cluster_thread import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.parametrize("admin_client", ADMINS)]


@pytest.fixture
def admin(admin_client: type[Admin], bootstrap_servers: str) -> Admin:
    return admin_client(bootstrap_servers)


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> str:
    """A name of the test's own; no such topic yet."""
    return f"{request.node.originalname}-{admin.name}".replace("_", "-")


def test_a_topic_is_created_used_and_deleted(admin: Admin, topic: str) -> None:
    admin.create(topic, 2, 1, {"retention.ms": "86400000", "max.message.bytes": "2000000"})
    assert admin.partitions(topic) == 2
    admin.grow(topic, 5)
    assert admin.partitions(topic) == 5
    configs = admin.topic_configs(topic)
    assert (configs["retention.ms"], configs["max.message.bytes"]) == ("86400000", "2000000")
    assert (configs["cleanup.policy"], configs["compression.type"]) == ("delete", "producer")
    admin.delete(topic)
    with pytest.raises(AdminRefused) as refused:
        admin.delete(topic)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_new_partitions_can_be_written_and_read(admin: Admin, topic: str, bootstrap_servers: str) -> None:
    admin.create(topic, 1, 1, {})
    client = Confluent(bootstrap_servers)
    client.produce(topic, 0, [Row(0, 0, None, b"old")], "none")
    admin.grow(topic, 3)
    client.produce(topic, 2, [Row(2, 0, None, b"new")], "none")
    assert [(row.partition, row.value) for row in sorted(client.consume(topic, 3))] == [(0, b"old"), (2, b"new")]


def test_replicas_are_created_described_and_replicated(admin: Admin, topic: str, bootstrap_servers: str) -> None:
    admin.create(topic, 3, 3, {"min.insync.replicas": "3"})
    client = Confluent(bootstrap_servers)
    for partition in range(3):
        values = [Row(partition, number, None, b"%d" % number) for number in range(100)]
        assert client.produce(topic, partition, values, "none") == list(range(100))
    shown = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(topic, timeout=20).topics[topic]
    assert [sorted(each.replicas) for each in shown.partitions.values()] == [[0, 1, 2]] * 3
    assert [sorted(each.isrs) for each in shown.partitions.values()] == [[0, 1, 2]] * 3
    assert sorted(each.leader for each in shown.partitions.values()) == [0, 1, 2]
    assert len(list(client.consume(topic, 3))) == 300


def test_a_recreated_topic_is_empty(admin: Admin, topic: str, bootstrap_servers: str) -> None:
    client = Confluent(bootstrap_servers)
    for round_number in range(3):
        admin.create(topic, 1, 1, {})
        value = b"round %d" % round_number
        assert client.produce(topic, 0, [Row(0, 0, None, value)], "none") == [0]
        assert [row.value for row in client.consume(topic, 1)] == [value]
        admin.delete(topic)


def test_records_before_an_offset_are_deleted(admin: Admin, topic: str, bootstrap_servers: str) -> None:
    admin.create(topic, 2, 1, {})
    client = Confluent(bootstrap_servers)
    values = [b"%d" % number for number in range(5)]
    client.produce(topic, 1, [Row(1, number, None, value) for number, value in enumerate(values)], "none")
    assert admin.delete_records(topic, 1, 2) == 2
    assert admin.delete_records(topic, 1, 1) == 2
    assert [(row.offset, row.value) for row in client.consume(topic, 2)] == list(enumerate(values))[2:]
    for before in (6, -2):
        with pytest.raises(AdminRefused) as refused:
            admin.delete_records(topic, 1, before)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert admin.delete_records(topic, 1, -1) == 5
    assert admin.delete_records(topic, 0, -1) == 0
    assert client.produce(topic, 1, [Row(1, 0, None, b"next")], "none") == [5]
    assert [(row.offset, row.value) for row in client.consume(topic, 2)] == [(5, b"next")]


def test_errors(admin: Admin, topic: str) -> None:
    admin.create(topic, 3, 1, {})
    with pytest.raises(AdminRefused) as refused:
        admin.create(topic, 3, 1, {})
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(AdminRefused) as refused:
        admin.create(f"{topic}-2", 3, 4, {})
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(AdminRefused) as refused:
        admin.create(f"{topic}-3", 1, 1, {"no.such.key": "1"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(AdminRefused) as refused:
        admin.create("no spaces", 1, 1, {})
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(AdminRefused) as refused:
        admin.grow(topic, 2)
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS
    with pytest.raises(AdminRefused) as refused:
        admin.grow(f"{topic}-4", 2)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_cluster_is_described(admin: Admin, cluster: RunningCluster) -> None:
    seen = admin.cluster()
    assert seen.cluster_id == cluster.cluster_id
    assert seen.controller_id in cluster.servers
    assert seen.brokers == cluster.servers


def test_the_brokers_configuration_is_described(admin: Admin) -> None:
    configs = admin.broker_configs(0)
    assert configs["listeners"] == "PLAINTEXT://127.0.0.1:0"
    assert configs["num.partitions"] == "1"
