"""confluent-kafka, the Python face of librdkafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.row import Row

ANSWER_SECONDS = 20.0


class Confluent:
    name = "confluent-kafka"
    sets_timestamps = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}

    def why_not(self, row: Row) -> str | None:
        return None

    def list_topics(self) -> dict[str, int]:
        listed = AdminClient(self._bootstrap).list_topics(timeout=ANSWER_SECONDS)
        return {name: len(topic.partitions) for name, topic in listed.topics.items()}

    def produce(self, topic: str, partition: int, rows: Sequence[Row], codec: str, **settings: Any) -> list[int]:
        producer = Producer({**self._bootstrap, "compression.type": codec, **settings})
        offsets: list[int] = []

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            offsets.append(-1 if offset is None else offset)

        for row in rows:
            producer.produce(
                topic,
                partition=partition,
                key=row.key,
                value=row.value,
                headers=list(row.headers),
                timestamp=row.timestamp_ms or 0,
                on_delivery=delivered,
            )
            producer.poll(0)
        assert producer.flush(ANSWER_SECONDS) == 0
        return offsets

    def consume(self, topic: str, partition_count: int, **settings: Any) -> list[Row]:
        consumer = Consumer({**self._bootstrap, "group.id": "readers-by-assignment", **settings})
        try:
            ends: dict[int, int] = {}
            for number in range(partition_count):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_SECONDS)
                if high > low:
                    ends[number] = high
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partition_count)])
            rows: list[Row] = []
            while ends:
                message = consumer.poll(ANSWER_SECONDS)
                assert message is not None, f"{len(rows)} records, then nothing for {ANSWER_SECONDS} s"
                row = _row(message)
                rows.append(row)
                if row.offset + 1 >= ends.get(row.partition, row.offset + 2):
                    del ends[row.partition]
            return rows
        finally:
            consumer.close()


def _row(message: Message) -> Row:
    assert message.error() is None, message.error()
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Row(partition, offset, message.key(), message.value(), tuple(headers), timestamp_ms)
