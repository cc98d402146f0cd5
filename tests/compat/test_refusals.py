"""What raylog does not serve is refused in bounded time, in words that say so; no client waits for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiokafka.errors
import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaProducer

from tests.compat.admin import ConfluentAdmin
from tests.compat.aiokafka_client import Aiokafka
from tests.compat.kafka_python import KafkaPython
from tests.compat.kcat import Kcat
from tests.compat.row import Row

pytestmark = pytest.mark.compat

PATIENCE_SECONDS = 30.0
"""What the clients are allowed; it must not be what ends the wait."""
AT_ONCE_SECONDS = 5.0


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    since = time.monotonic()
    yield
    assert time.monotonic() - since < AT_ONCE_SECONDS


class TestTransactions:
    """Every client takes TRANSACTIONAL_ID_AUTHORIZATION_FAILED for final; librdkafka shows the broker's sentence."""

    def test_confluent(self, bootstrap_servers: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "t"})
        with pytest.raises(KafkaException, match="Transactions are not served yet") as refused:
            producer.init_transactions(PATIENCE_SECONDS)
        error = refused.value.args[0]
        assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert error.fatal()

    def test_kcat(self, bootstrap_servers: str) -> None:
        with pytest.raises(AssertionError, match="Transactions are not served yet"):
            Kcat(bootstrap_servers).run(["-P", "-t", "t", "-X", "transactional.id=t"], typed=b"x\n")

    def test_kafka_python(self, bootstrap_servers: str) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="t")
        with pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
        producer.close(timeout=1)

    def test_aiokafka(self, bootstrap_servers: str) -> None:
        async def start() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="t")
            try:
                await asyncio.wait_for(producer.start(), PATIENCE_SECONDS)
            finally:
                await producer.stop()

        with pytest.raises(aiokafka.errors.TransactionalIdAuthorizationFailed):
            asyncio.run(start())


class TestRecordsThatAreTooLarge:
    """Larger than max.message.bytes of the topic, and smaller than what the client checks by itself."""

    LARGE = b"x" * 5000

    @pytest.fixture
    def topic(self, bootstrap_servers: str, request: pytest.FixtureRequest) -> str:
        name = f"small-records-{request.node.name}"
        ConfluentAdmin(bootstrap_servers).create(name, 1, 1, {"max.message.bytes": "1000"})
        return name

    def test_confluent(self, bootstrap_servers: str, topic: str) -> None:
        errors: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            errors.append(error)

        producer = Producer({"bootstrap.servers": bootstrap_servers})
        producer.produce(topic, self.LARGE, on_delivery=delivered)
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert [error and error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]

    def test_kcat(self, bootstrap_servers: str, topic: str) -> None:
        with pytest.raises(AssertionError, match="Message size too large"):
            Kcat(bootstrap_servers).run(["-P", "-t", topic, "-p", "0"], typed=self.LARGE)

    def test_kafka_python(self, bootstrap_servers: str, topic: str) -> None:
        with pytest.raises(kafka.errors.MessageSizeTooLargeError, match=r"max\.message\.bytes=1000"):
            KafkaPython(bootstrap_servers).produce(topic, 0, [Row(0, 0, None, self.LARGE)], "none")

    def test_aiokafka(self, bootstrap_servers: str, topic: str) -> None:
        with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
            Aiokafka(bootstrap_servers).produce(topic, 0, [Row(0, 0, None, self.LARGE)], "none")


class TestWhatIsNotThere:
    def test_a_partition_that_is_not_there(self, bootstrap_servers: str) -> None:
        ConfluentAdmin(bootstrap_servers).create("one-partition", 1, 1, {})
        with pytest.raises(AssertionError, match="partition 3 does not exist"):
            Kcat(bootstrap_servers).run(["-C", "-t", "one-partition", "-p", "3", "-e"])

    def test_an_offset_beyond_the_end(self, bootstrap_servers: str) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "lost", "auto.offset.reset": "error"})
        ConfluentAdmin(bootstrap_servers).create("short", 1, 1, {})
        consumer.list_topics(timeout=PATIENCE_SECONDS)
        consumer.assign([TopicPartition("short", 0, 1000)])
        message = consumer.poll(PATIENCE_SECONDS)
        consumer.close()
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
