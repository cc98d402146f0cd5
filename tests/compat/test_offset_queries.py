"""Every client finds the same first and last offsets of a partition, and the same offset for a timestamp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.compat.confluent import Confluent
from tests.compat.kcat import Kcat
from tests.compat.row import Row
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

pytestmark = pytest.mark.compat

ANSWER_SECONDS = 20.0
TOPIC = "in-time"
START_MS = 1_357_000_000_000
RECORDS = 50
"""One record a second, in five batches."""

Answer = tuple[int, int, list[int | None]]
"""First offset, next offset, and for each point in time the first offset at or after it (None: there is none)."""


@pytest.fixture(scope="module", autouse=True)
def fifty_seconds(cluster: RunningCluster) -> None:
    create_topic(cluster.bootstrap_servers, TOPIC, partitions=2)
    rows = [Row(0, 0, None, b"x", (), START_MS + 1000 * number) for number in range(RECORDS)]
    for first in range(0, RECORDS, 10):
        Confluent(cluster.bootstrap_servers).produce(TOPIC, 0, rows[first : first + 10], "none")


def ask_confluent(bootstrap_servers: str, times: list[int]) -> Answer:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "asks"})
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=ANSWER_SECONDS)
    found: list[int | None] = []
    for time_ms in times:
        (answer,) = consumer.offsets_for_times([TopicPartition(TOPIC, 0, time_ms)], timeout=ANSWER_SECONDS)
        assert answer.error is None
        found.append(answer.offset if answer.offset >= 0 else None)
    consumer.close()
    return low, high, found


def ask_kafka_python(bootstrap_servers: str, times: list[int]) -> Answer:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers)
    tp = KafkaPythonPartition(TOPIC, 0)
    low, high = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
    found = [consumer.offsets_for_times({tp: time_ms})[tp] for time_ms in times]
    consumer.close()
    return low, high, [answer and answer.offset for answer in found]


def ask_aiokafka(bootstrap_servers: str, times: list[int]) -> Answer:
    async def ask() -> Answer:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
        await consumer.start()
        try:
            tp = AiokafkaPartition(TOPIC, 0)
            low, high = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
            found = [(await consumer.offsets_for_times({tp: time_ms}))[tp] for time_ms in times]
            return low, high, [answer and answer.offset for answer in found]
        finally:
            await consumer.stop()

    return asyncio.run(ask())


def ask_kcat(bootstrap_servers: str, times: list[int]) -> Answer:
    """Kafka's -2 and -1 are the points in time of the first and the next offset."""

    def ask_one(time_ms: int) -> int:
        answer = Kcat(bootstrap_servers).run(["-Q", "-t", f"{TOPIC}:0:{time_ms}"]).stdout
        return int(answer.split()[-1])

    found = [ask_one(time_ms) for time_ms in times]
    return ask_one(-2), ask_one(-1), [offset if offset >= 0 else None for offset in found]


ASK: Final[tuple[Callable[[str, list[int]], Answer], ...]] = (ask_confluent, ask_kafka_python, ask_aiokafka, ask_kcat)


@pytest.mark.parametrize("ask", ASK)
def test_offsets_by_timestamp(bootstrap_servers: str, ask: Callable[[str, list[int]], Answer]) -> None:
    times = [0, START_MS, START_MS + 1, START_MS + 1000, START_MS + 24_999, START_MS + 49_000, START_MS + 49_001]
    assert ask(bootstrap_servers, times) == (0, RECORDS, [0, 0, 1, 1, 25, 49, None])
