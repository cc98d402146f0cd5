"""What a stock consumer sees of a topic."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def committed(servers: str, topic: str, *, whole: bool = False) -> list[Any]:
    """The values that a read_committed consumer finds; or partition, key, value and headers of each record."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "stock",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[Any] = []
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(30)
            assert message is not None, "the topic has an end"
            if message.error() is not None:
                ended += 1
            elif whole:
                headers: Any = message.headers() or ()
                found.append((message.partition(), message.key(), message.value(), tuple(headers)))
            else:
                found.append(message.value())
        return found
    finally:
        consumer.close()
