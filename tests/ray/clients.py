"""What the tests of this folder ask a cluster with a stock client."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 60.0


def topics_of(bootstrap_servers: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=ANSWER_SECONDS).topics)


def cluster_id_of(bootstrap_servers: str) -> str:
    cluster_id = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=ANSWER_SECONDS).cluster_id
    assert cluster_id is not None
    return cluster_id


def write(bootstrap_servers: str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Acknowledged when it returns."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(ANSWER_SECONDS) == 0


def read(bootstrap_servers: str, topic: str, partition: int = 0, **config: Any) -> list[tuple[int, bytes | None]]:
    """Offsets and values of all that the partition holds now."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "tests", "enable.auto.commit": False, **config}
    )
    try:
        tp = TopicPartition(topic, partition, OFFSET_BEGINNING)
        low, high = consumer.get_watermark_offsets(tp, timeout=ANSWER_SECONDS)
        consumer.assign([tp])
        found: list[tuple[int, bytes | None]] = []
        while len(found) < high - low:
            messages = consumer.consume(min(high - low - len(found), 10_000), timeout=ANSWER_SECONDS)
            assert messages, f"{len(found)} records, then nothing; the partition says {low} to {high}"
            for message in messages:
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset is not None
                found.append((offset, message.value()))
        return found
    finally:
        consumer.close()


def answers(bootstrap_servers: str) -> bool:
    """Whether anybody listens there."""
    host, port = bootstrap_servers.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
