"""Transactions of stock producers are atomic, and a zombie producer is fenced."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from aiokafka.structs import OffsetAndMetadata as AiokafkaOffset
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.structs import OffsetAndMetadata as KafkaPythonOffset

from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread

pytestmark = pytest.mark.compat

PATIENCE_SECONDS = 30.0
CONFIG = {"offsets.topic.num.partitions": 6, "transaction.state.log.num.partitions": 6}
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("transactions"), brokers=3) as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    name = f"transactions-{next(_NUMBERS)}"
    create_topic(cluster.bootstrap_servers, name, partitions=2)
    return name


class ConfluentProducer:
    FENCED = (KafkaException,)

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self._servers = bootstrap_servers
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id})
        self._producer.init_transactions(PATIENCE_SECONDS)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        member = Consumer({"bootstrap.servers": self._servers, "group.id": group})
        positions = [TopicPartition(topic, partition, offset)]
        self._producer.send_offsets_to_transaction(positions, member.consumer_group_metadata(), PATIENCE_SECONDS)
        member.close()

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_SECONDS)

    def close(self) -> None:
        del self._producer


class KafkaPythonProducer:
    FENCED = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition).get(PATIENCE_SECONDS)

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        positions = {kafka.TopicPartition(topic, partition): KafkaPythonOffset(offset, "", -1)}
        self._producer.send_offsets_to_transaction(positions, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class AiokafkaProducer:
    FENCED = (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch)

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
            await producer.start()
            return producer

        self._producer = self._run(start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        positions = {aiokafka.TopicPartition(topic, partition): AiokafkaOffset(offset, "")}
        self._run(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.close()

    def _run(self, step: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(step, PATIENCE_SECONDS))


LIBRARIES = [ConfluentProducer, KafkaPythonProducer, AiokafkaProducer]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.__name__)
def library(request: pytest.FixtureRequest) -> Any:
    """They have the same methods; what was sent is in the log when `send` returns."""
    return request.param


@pytest.fixture
def name() -> str:
    return f"id-{next(_NUMBERS)}"


def seen(cluster: RunningCluster, topic: str, *, isolation_level: str = "read_committed") -> list[tuple[int, bytes]]:
    """(partition, value) of all there is, as librdkafka shows it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: list[tuple[int, bytes]] = []
    ended: set[int | None] = set()
    while len(ended) < 2:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None, "it hangs"
        error = message.error()
        if error is None:
            found.append((message.partition() or 0, message.value() or b""))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def committed(cluster: RunningCluster, group: str, topic: str) -> Sequence[int]:
    """For the two partitions, where no transaction may change them any more."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition) for partition in range(2)])]
    (answer,) = admin.list_consumer_group_offsets(wanted, require_stable=True).values()
    return [each.offset for each in answer.result(PATIENCE_SECONDS).topic_partitions]


def test_commit_and_abort(cluster: RunningCluster, topic: str, name: str, library: Any) -> None:
    producer = library(cluster.bootstrap_servers, name)
    for number in range(6):
        producer.begin()
        for partition in range(2):
            producer.send(topic, partition, b"%d" % number)
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    producer.close()
    assert seen(cluster, topic) == [(partition, value) for partition in range(2) for value in (b"0", b"2", b"4")]
    assert len(seen(cluster, topic, isolation_level="read_uncommitted")) == 12


def test_offsets_are_committed_with_the_records_or_not_at_all(
    cluster: RunningCluster, topic: str, name: str, library: Any
) -> None:
    producer = library(cluster.bootstrap_servers, name)
    for offset, is_committed in ((5, True), (8, False)):
        producer.begin()
        producer.send(topic, 0, b"%d" % offset)
        producer.send_offset(topic, 1, offset, f"group-{name}")
        if is_committed:
            producer.commit()
        else:
            producer.abort()
    producer.close()
    assert committed(cluster, f"group-{name}", topic)[1] == 5
    assert seen(cluster, topic) == [(0, b"5")]


def test_a_second_producer_fences_the_first(cluster: RunningCluster, topic: str, name: str, library: Any) -> None:
    zombie = library(cluster.bootstrap_servers, name)
    zombie.begin()
    zombie.send(topic, 0, b"zombie")
    producer = library(cluster.bootstrap_servers, name)
    with pytest.raises(zombie.FENCED):
        zombie.commit()
    producer.begin()
    producer.send(topic, 0, b"new")
    producer.commit()
    assert seen(cluster, topic) == [(0, b"new")]
    producer.close()
    zombie.close()


def test_consumers_of_other_libraries_skip_aborted_records(cluster: RunningCluster, topic: str, name: str) -> None:
    producer = ConfluentProducer(cluster.bootstrap_servers, name)
    for value, is_committed in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin()
        producer.send(topic, 0, value)
        if is_committed:
            producer.commit()
        else:
            producer.abort()
    reader = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    reader.assign([kafka.TopicPartition(topic, 0)])
    found: list[bytes] = []
    while len(found) < 2:
        for records in reader.poll(timeout_ms=1000).values():
            found += [record.value for record in records]
    reader.close()
    assert found == [b"a", b"c"]
