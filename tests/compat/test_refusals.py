"""Requests that raylog refuses fail in stock clients with a clear error, not with a timeout."""

from __future__ import annotations

import aiokafka.errors
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.compat.admin import ConfluentAdmin
from tests.compat.aiokafka_client import Aiokafka
from tests.compat.kafka_python import KafkaPython
from tests.compat.kcat import Kcat
from tests.compat.row import Row

pytestmark = pytest.mark.compat

PATIENCE_SECONDS = 30.0
"""What the clients are allowed. When it ends the wait there is another error than the expected one, or none."""


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


class TestTimestampsInTheFuture:
    """Later than message.timestamp.after.max.ms permits: the broker lists the refused records (KIP-467)."""

    FUTURE_MS = 4_000_000_000_000

    @pytest.fixture
    def topic(self, bootstrap_servers: str, request: pytest.FixtureRequest) -> str:
        name = f"future-{request.node.name}"
        ConfluentAdmin(bootstrap_servers).create(name, 1, 1, {})
        return name

    def test_confluent(self, bootstrap_servers: str, topic: str) -> None:
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        producer.produce(topic, b"x", timestamp=self.FUTURE_MS, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert [error and error.code() for error in errors] == [KafkaError.INVALID_TIMESTAMP]

    def test_kafka_python(self, bootstrap_servers: str, topic: str) -> None:
        with pytest.raises(kafka.errors.InvalidTimestampError, match="must be in"):
            KafkaPython(bootstrap_servers).produce(topic, 0, [Row(0, 0, None, b"x", (), self.FUTURE_MS)], "none")

    def test_aiokafka(self, bootstrap_servers: str, topic: str) -> None:
        with pytest.raises(aiokafka.errors.InvalidTimestampError):
            Aiokafka(bootstrap_servers).produce(topic, 0, [Row(0, 0, None, b"x", (), self.FUTURE_MS)], "none")


class TestUnknownTargets:
    def test_unknown_partition(self, bootstrap_servers: str) -> None:
        ConfluentAdmin(bootstrap_servers).create("one-partition", 1, 1, {})
        with pytest.raises(AssertionError, match="partition 3 does not exist"):
            Kcat(bootstrap_servers).run(["-C", "-t", "one-partition", "-p", "3", "-e"])

    def test_offset_beyond_the_end(self, bootstrap_servers: str) -> None:
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
