"""Offsets committed by a consumer with assigned partitions are found by every client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition

from tests.compat.confluent import Confluent
from tests.compat.kcat import Kcat
from tests.compat.row import Row
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

pytestmark = pytest.mark.compat

ANSWER_SECONDS = 20.0
TOPIC = "committed"
T = TypeVar("T")


class Member(Protocol):
    """A client that belongs to a group without having joined it. Partition 0 of TOPIC is what it talks about."""

    def __init__(self, bootstrap_servers: str, group: str) -> None: ...

    def commit(self, offset: int, metadata: str) -> None: ...

    def committed(self) -> int | None: ...

    def next_value(self) -> bytes | None:
        """The value of the first record that it reads without a seek."""


class ConfluentMember:
    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap_servers, "group.id": group}

    def commit(self, offset: int, metadata: str) -> None:
        consumer = Consumer(self._settings)
        position = TopicPartition(TOPIC, 0, offset, metadata)
        answered = consumer.commit(offsets=[position], asynchronous=False)
        assert answered is not None
        assert [each.error for each in answered] == [None]
        consumer.close()

    def committed(self) -> int | None:
        consumer = Consumer(self._settings)
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=ANSWER_SECONDS)
        assert found.error is None
        consumer.close()
        return found.offset if found.offset >= 0 else None

    def next_value(self) -> bytes | None:
        consumer = Consumer({**self._settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0)])
        message = consumer.poll(ANSWER_SECONDS)
        consumer.close()
        assert message is not None
        assert message.error() is None
        return message.value()


class KafkaPythonMember:
    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self._settings = {"bootstrap_servers": bootstrap_servers, "group_id": group}

    def commit(self, offset: int, metadata: str) -> None:
        consumer = KafkaConsumer(**self._settings)
        consumer.commit({KafkaPythonPartition(TOPIC, 0): OffsetAndMetadata(offset, metadata, -1)})
        consumer.close()

    def committed(self) -> int | None:
        consumer = KafkaConsumer(**self._settings)
        found: int | None = consumer.committed(KafkaPythonPartition(TOPIC, 0))
        consumer.close()
        return found

    def next_value(self) -> bytes | None:
        consumer = KafkaConsumer(**self._settings, enable_auto_commit=False)
        consumer.assign([KafkaPythonPartition(TOPIC, 0)])
        (records,) = consumer.poll(timeout_ms=int(ANSWER_SECONDS * 1000), max_records=1).values()
        consumer.close()
        value: bytes | None = records[0].value
        return value


class AiokafkaMember:
    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self._settings = {"bootstrap_servers": bootstrap_servers, "group_id": group}

    def commit(self, offset: int, metadata: str) -> None:
        async def commit(consumer: AIOKafkaConsumer) -> None:
            await consumer.commit({AiokafkaPartition(TOPIC, 0): (offset, metadata)})

        asyncio.run(self._with(commit))

    def committed(self) -> int | None:
        async def committed(consumer: AIOKafkaConsumer) -> int | None:
            found: int | None = await consumer.committed(AiokafkaPartition(TOPIC, 0))
            return found

        return asyncio.run(self._with(committed))

    def next_value(self) -> bytes | None:
        async def read(consumer: AIOKafkaConsumer) -> bytes | None:
            record = await asyncio.wait_for(consumer.getone(), ANSWER_SECONDS)
            value: bytes | None = record.value
            return value

        return asyncio.run(self._with(read, enable_auto_commit=False))

    async def _with(self, use: Callable[[AIOKafkaConsumer], Awaitable[T]], **settings: object) -> T:
        consumer = AIOKafkaConsumer(**self._settings, **settings)
        await consumer.start()
        try:
            consumer.assign([AiokafkaPartition(TOPIC, 0)])
            return await use(consumer)
        finally:
            await consumer.stop()


MEMBERS: Final[tuple[type[Member], ...]] = (ConfluentMember, KafkaPythonMember, AiokafkaMember)


@pytest.fixture(scope="module", autouse=True)
def ten_records(cluster: RunningCluster) -> None:
    create_topic(cluster.bootstrap_servers, TOPIC, partitions=2)
    Confluent(cluster.bootstrap_servers).produce(
        TOPIC, 0, [Row(0, 0, None, b"%d" % number) for number in range(10)], "none"
    )


@pytest.mark.parametrize("committer", MEMBERS)
def test_a_commit_is_found_by_every_client(bootstrap_servers: str, committer: type[Member]) -> None:
    group = f"group-of-{committer.__name__}"
    assert [member(bootstrap_servers, group).committed() for member in MEMBERS] == [None, None, None]
    committer(bootstrap_servers, group).commit(7, "a note")
    assert [member(bootstrap_servers, group).committed() for member in MEMBERS] == [7, 7, 7]
    committer(bootstrap_servers, group).commit(4, "")
    assert [member(bootstrap_servers, group).committed() for member in MEMBERS] == [4, 4, 4]


@pytest.mark.parametrize("reader", MEMBERS)
def test_a_consumer_resumes_at_the_committed_offset(bootstrap_servers: str, reader: type[Member]) -> None:
    group = f"followed-by-{reader.__name__}"
    ConfluentMember(bootstrap_servers, group).commit(6, "")
    assert reader(bootstrap_servers, group).next_value() == b"6"


def test_kcat_resumes_at_the_stored_offset(bootstrap_servers: str) -> None:
    """-o stored asks for the group's offset, and commits where it ends."""
    kcat = Kcat(bootstrap_servers)
    read_stored = ["-C", "-t", TOPIC, "-p", "0", "-o", "stored", "-X", "group.id=kcat", "-q"]
    ConfluentMember(bootstrap_servers, "kcat").commit(3, "")
    assert kcat.run([*read_stored, "-c", "2"]).stdout.split() == [b"3", b"4"]
    assert kcat.run([*read_stored, "-e"]).stdout.split() == [b"5", b"6", b"7", b"8", b"9"]


def test_default_settings_commit_when_the_consumer_closes(bootstrap_servers: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "by-default"})
    consumer.assign([TopicPartition(TOPIC, 0, 2)])
    assert len(consumer.consume(3, timeout=ANSWER_SECONDS)) == 3
    consumer.close()
    assert [member(bootstrap_servers, "by-default").committed() for member in MEMBERS] == [5, 5, 5]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_group_without_commits_has_no_position(bootstrap_servers: str, member: type[Member]) -> None:
    assert member(bootstrap_servers, "silent").committed() is None
