"""A stock admin client reassigns partitions in use, and gets Kafka's error codes.

Of the clients kafka-python alone has these calls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaAdminClient, TopicPartition

from raylog.core.errors import ErrorCode
from tests.compat.conftest import Complaints
from tests.compat.topics import create_topic

pytestmark = pytest.mark.compat

MOVE_SECONDS = 30.0
RECORDS = 200


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def replicas(admin: KafkaAdminClient, topic: str) -> tuple[list[int], int]:
    """Of partition 0, and its leader."""
    [partition] = admin.describe_topics([topic])[0]["partitions"]
    return partition["replica_nodes"], partition["leader_id"]


def move(admin: KafkaAdminClient, topic: str, to: Sequence[int]) -> None:
    partition = TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({partition: list(to)}) == {partition: None}
    deadline = time.monotonic() + MOVE_SECONDS
    while admin.list_partition_reassignments([partition]):
        assert time.monotonic() < deadline, "it goes on for ever"
        time.sleep(0.05)
    assert replicas(admin, topic)[0] == list(to)


def test_a_partition_moves_under_a_producer_and_a_consumer(
    bootstrap_servers: str, admin: KafkaAdminClient, complaints: Complaints
) -> None:
    topic = "moved-around"
    create_topic(bootstrap_servers, topic, partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 0})
    refused: list[object] = []
    written = 0
    [home], _ = replicas(admin, topic)
    others = [broker_id for broker_id in range(3) if broker_id != home]
    for target in (others, [home, others[0]], [others[1]], [home]):
        for _ in range(RECORDS // 4):
            producer.produce(topic, str(written), callback=lambda error, _: refused.append(error) if error else None)
            written += 1
        move(admin, topic, target)
        assert replicas(admin, topic)[1] in target
    assert producer.flush(MOVE_SECONDS) == 0
    assert refused == []
    assert all("an idempotent batch was refused" in line for line in complaints.lines)  # it came to the old leader
    complaints.lines.clear()
    assert consumed(bootstrap_servers, topic, written) == [str(number).encode() for number in range(written)]


def consumed(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "moved", "enable.auto.commit": False})
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, MOVE_SECONDS)]
    finally:
        consumer.close()


def test_invalid_reassignments_are_refused(bootstrap_servers: str, admin: KafkaAdminClient) -> None:
    topic = "not-moved"
    create_topic(bootstrap_servers, topic, partitions=2)
    there, unknown = TopicPartition(topic, 0), TopicPartition("never-made", 0)
    asked = {there: [0, 7], TopicPartition(topic, 1): None, unknown: [0]}
    answer = admin.alter_partition_reassignments(asked)
    assert {partition: refusal.errno for partition, refusal in answer.items()} == {
        there: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        TopicPartition(topic, 1): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert admin.list_partition_reassignments() == {}
