"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from tests.compat.row import Row

ANSWER_SECONDS = 20.0


class KafkaPython:
    name = "kafka-python"
    sets_timestamps = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def why_not(self, row: Row) -> str | None:
        if row.key is None and row.value is None:
            return "it asks for a key or a value"
        if any(value is None for _, value in row.headers):
            return "it takes only bytes as the value of a header"
        return None

    def list_topics(self) -> dict[str, int]:
        admin = KafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
        try:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
        finally:
            admin.close()

    def produce(self, topic: str, partition: int, rows: Sequence[Row], codec: str, **settings: Any) -> list[int]:
        settings = {"compression_type": None if codec == "none" else codec, **settings}
        producer = KafkaProducer(bootstrap_servers=self._bootstrap_servers, **settings)
        try:
            sent = [
                producer.send(
                    topic,
                    partition=partition,
                    key=row.key,
                    value=row.value,
                    headers=list(row.headers),
                    timestamp_ms=row.timestamp_ms,
                )
                for row in rows
            ]
            producer.flush(timeout=ANSWER_SECONDS)
            return [each.get(timeout=ANSWER_SECONDS).offset for each in sent]
        finally:
            producer.close()

    def consume(self, topic: str, partition_count: int, **settings: Any) -> list[Row]:
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap_servers, **settings)
        try:
            partitions = [TopicPartition(topic, number) for number in range(partition_count)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(partitions)
            rows: list[Row] = []
            deadline = time.monotonic() + ANSWER_SECONDS
            while any(consumer.position(tp) < end for tp, end in ends.items()):
                assert time.monotonic() < deadline, f"{len(rows)} records after {ANSWER_SECONDS} s, of up to {ends}"
                for records in consumer.poll(timeout_ms=1000).values():
                    rows += [_row(record) for record in records]
            return rows
        finally:
            consumer.close()


def _row(record: Any) -> Row:
    assert record.timestamp_type == 0
    headers = tuple((name, value) for name, value in record.headers)
    return Row(record.partition, record.offset, record.key, record.value, headers, record.timestamp)
