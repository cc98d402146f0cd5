"""aiokafka, each call in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.compat.row import Row

ANSWER_SECONDS = 20.0


class Aiokafka:
    name = "aiokafka"
    sets_timestamps = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def why_not(self, row: Row) -> str | None:
        return "it asks for a key or a value" if row.key is None and row.value is None else None

    def list_topics(self) -> dict[str, int]:
        return asyncio.run(self._list_topics())

    def produce(self, topic: str, partition: int, rows: Sequence[Row], codec: str, **settings: Any) -> list[int]:
        settings = {"compression_type": None if codec == "none" else codec, **settings}
        return asyncio.run(self._produce(topic, partition, rows, settings))

    def consume(self, topic: str, partition_count: int, **settings: Any) -> list[Row]:
        return asyncio.run(self._consume(topic, partition_count, settings))

    async def _list_topics(self) -> dict[str, int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
        await admin.start()
        try:
            described = await admin.describe_topics(await admin.list_topics())
            return {topic["topic"]: len(topic["partitions"]) for topic in described}
        finally:
            await admin.close()

    async def _produce(self, topic: str, partition: int, rows: Sequence[Row], settings: dict[str, Any]) -> list[int]:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap_servers, **settings)
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    partition=partition,
                    key=row.key,
                    value=row.value,
                    headers=list(row.headers),
                    timestamp_ms=row.timestamp_ms,
                )
                for row in rows
            ]
            answers = await asyncio.wait_for(asyncio.gather(*sent), ANSWER_SECONDS)
            return [-1 if answer is None else answer.offset for answer in answers]
        finally:
            await producer.stop()

    async def _consume(self, topic: str, partition_count: int, settings: dict[str, Any]) -> list[Row]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap_servers, **settings)
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(partition_count)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(partitions)
            rows: list[Row] = []
            async with asyncio.timeout(ANSWER_SECONDS):
                for tp, end in ends.items():
                    while await consumer.position(tp) < end:
                        for records in (await consumer.getmany(timeout_ms=1000)).values():
                            rows += [_row(record) for record in records]
            return rows
        finally:
            await consumer.stop()


def _row(record: Any) -> Row:
    assert record.timestamp_type == 0
    headers = tuple((name, value) for name, value in record.headers)
    return Row(record.partition, record.offset, record.key, record.value, headers, record.timestamp)
