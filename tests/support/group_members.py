"""Members of one group that are raylog's consumers and librdkafka's, and raylog's producer that writes for them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import confluent_kafka

from raylog.client.consumer.consumer import Consumer
from raylog.client.producer.producer import Delivery, Producer
from raylog.core.errors import KafkaError
from tests.support.hang import HANG_SECONDS

RECORDS_BETWEEN = 200
SOCKET_TIMEOUT_MS = 3000


class Group:
    """What its members have read. The same offset always has the same value."""

    def __init__(self, servers: str, topic: str, strategy: str = "cooperative-sticky") -> None:
        """Its group id is the name of the topic."""
        self.servers, self.topic, self.strategy = servers, topic, strategy
        self.read: dict[tuple[int, int], bytes] = {}
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._members: list[tuple[threading.Thread, threading.Event]] = []

    def join(self, member: Callable[[Group, threading.Event], None]) -> None:
        ends = threading.Event()

        def run() -> None:
            try:
                member(self, ends)
            except (AssertionError, KafkaError) as error:
                self.failures.append(repr(error))

        thread = threading.Thread(target=run, daemon=True)
        self._members.append((thread, ends))
        thread.start()

    def end_one(self, index: int) -> None:
        thread, ends = self._members.pop(index)
        ends.set()
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()

    def end(self) -> None:
        while self._members:
            self.end_one(0)

    def got(self, partition: int, offset: int, value: bytes) -> None:
        with self._lock:
            before = self.read.setdefault((partition, offset), value)
        assert before == value, f"{partition}, offset {offset}: {before!r} has changed to {value!r}"


def own_member(group: Group, ends: threading.Event) -> None:
    """Ends in order, or as a process that is killed: without leaving the group."""
    consumer = Consumer(
        bootstrap_servers=group.servers,
        group_id=group.topic,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=group.strategy,
        request_timeout_ms=3000,
    )
    consumer.subscribe(group.topic)
    while not ends.is_set():
        for record in consumer.poll(0.1):
            group.got(record.partition, record.offset, record.value)
    with suppress(KafkaError):
        consumer.close(0.0 if random.random() < 0.5 else 5.0)


def stock_member(group: Group, ends: threading.Event) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": group.servers,
            "group.id": group.topic,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": group.strategy,
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        }
    )
    consumer.subscribe([group.topic])
    while not ends.is_set():
        message: Any = consumer.poll(0.1)
        if message is not None and message.error() is None:
            group.got(message.partition(), message.offset(), message.value())
    consumer.close()


class Writer:
    """Sends numbered values to each partition until it is ended."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.sent: list[list[tuple[bytes, Delivery]]] = [[] for _ in range(partitions)]
        self._producer = Producer(bootstrap_servers=servers, request_timeout_ms=3000, delivery_timeout_ms=300_000)
        self._topic = topic
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> list[int]:
        return [sum(delivery.done() for _, delivery in sent) for sent in self.sent]

    def _run(self) -> None:
        while not self._ends.is_set():
            for partition, sent in enumerate(self.sent):
                value = b"%d-%d" % (partition, len(sent))
                sent.append((value, self._producer.send(self._topic, value, partition=partition)))
            time.sleep(0.003)

    def end(self) -> dict[tuple[int, int], bytes]:
        """The values that were acknowledged with an offset, by partition and offset."""
        self._ends.set()
        self._thread.join()
        self._producer.close()
        expected: dict[tuple[int, int], bytes] = {}
        for partition, sent in enumerate(self.sent):
            offsets = [delivery.result().offset for _, delivery in sent]
            known = [offset for offset in offsets if offset >= 0]
            assert known == sorted(set(known)), f"partition {partition}: the order of the offsets is not that of send"
            expected |= {
                (partition, offset): value for offset, (value, _) in zip(offsets, sent, strict=True) if offset >= 0
            }
        return expected


def until(is_so: Callable[[], bool], group: Group, what: str) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not is_so():
        assert not group.failures, group.failures
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def more(counts: Callable[[], Sequence[int]]) -> Callable[[], bool]:
    goals = [count + RECORDS_BETWEEN for count in counts()]
    return lambda: all(count >= goal for count, goal in zip(counts(), goals, strict=True))
