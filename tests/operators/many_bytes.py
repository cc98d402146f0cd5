"""More bytes than a broker can have in its page cache, written and read by stock clients on one broker."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.hang import HANG_SECONDS

RECORD_BYTES = 500_000


class ManyBytes:
    """A topic with one replica, on the given broker."""

    def __init__(self, bootstrap_servers: str, topic: str, broker_id: int) -> None:
        self._common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap_servers}
        self._topic = topic
        self._admin = AdminClient(self._common)
        config = {"min.insync.replicas": "1", "segment.bytes": str(8 << 20)}
        wanted = NewTopic(topic, 1, replica_assignment=[[broker_id]], config=config)
        self._admin.create_topics([wanted])[topic].result(HANG_SECONDS)
        self._written = 0

    def write(self, size_bytes: int) -> None:
        """All of it is acknowledged."""
        failures: list[object] = []
        producer = Producer({**self._common, "enable.idempotence": True, "queue.buffering.max.kbytes": 8 << 10})
        for number in range(size_bytes // RECORD_BYTES):
            self._produce(producer, number, failures)
        assert not producer.flush(HANG_SECONDS)
        assert not failures, failures[0]
        self._written += size_bytes // RECORD_BYTES

    def read(self) -> None:
        """From the beginning; raises AssertionError if something is missing or changed."""
        consumer = Consumer({**self._common, "group.id": "tests", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        for number in range(self._written):
            message = consumer.poll(HANG_SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            assert message.value() == _value(number)
        consumer.close()

    def delete(self) -> None:
        self._admin.delete_topics([self._topic])[self._topic].result(HANG_SECONDS)

    def _produce(self, producer: Producer, number: int, failures: list[object]) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            try:
                producer.produce(
                    self._topic,
                    _value(number),
                    partition=0,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                break
            except BufferError:
                assert time.monotonic() < deadline, "no progress"
                producer.poll(0.05)
        producer.poll(0)


def _value(number: int) -> bytes:
    return number.to_bytes(8) * (RECORD_BYTES // 8)
