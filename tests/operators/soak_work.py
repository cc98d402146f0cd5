"""What goes on during a soak beside the load with a ledger: each kind of work in a thread of its own.

A worker repeats a short piece of work until the soak ends, and begins it again after an error that a client may see
while nodes are killed.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import cycle

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from raylog.client.partition_reader import PartitionReader
from raylog.core.errors import KafkaError
from tests.compat.topics import create_topic

SHARED, TRANSACTIONAL = "soak-shared", "soak-transactions"
PARTITIONS = 6
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP_MEMBERS = 3
SHARED_CONFIG = {"segment.bytes": str(1 << 20), "retention.bytes": str(4 << 20), "retention.ms": "60000"}
"""Retention deletes segments all the time, so that the disk use has a bound."""
EXPECTED = (KafkaException, KafkaError, OSError)
"""What clients get while nodes are killed."""
PIECE_SECONDS = 5.0
HOSTILE_BYTES_MAX = 5000
PAUSE_SECONDS = 0.05


class Work:
    """All workers of a soak, from `start` to `stop`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.servers = bootstrap_servers
        self.done: Counter[str] = Counter()
        """How many pieces of work each kind has done."""
        self.failed: Counter[str] = Counter()
        self.broken: list[str] = []
        """Errors that no client may see."""
        self._stopping = threading.Event()
        self._numbers = iter(range(1 << 62))
        for topic in (SHARED, TRANSACTIONAL):
            create_topic(bootstrap_servers, topic, partitions=PARTITIONS, replication_factor=3, configs=SHARED_CONFIG)
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("idempotent producer", lambda: self._produce(idempotent=True)),
            ("plain producer", lambda: self._produce(idempotent=False)),
            ("transactions", self._transactions),
            ("topics", self._topics),
            ("local reader", self._local_reader),
            ("hostile frames", self._hostile),
            *[(f"group member {number}", self._group_member) for number in range(GROUP_MEMBERS)],
        ]
        self._codecs = cycle(CODECS)
        self._threads = [threading.Thread(target=self._repeat, args=kind, daemon=True) for kind in kinds]
        self.kinds = [name for name, _ in kinds]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, name: str, piece: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                piece()
                self.done[name] += 1
            except EXPECTED:
                self.failed[name] += 1
                self._stopping.wait(1)
            except Exception as error:
                self.broken.append(f"{name}: {error!r}")
                return

    def _piece(self) -> Callable[[], bool]:
        """Whether the piece of work goes on."""
        end = time.monotonic() + PIECE_SECONDS
        return lambda: time.monotonic() < end and not self._stopping.wait(PAUSE_SECONDS)

    def _config(self, **config: object) -> dict[str, object]:
        return {"bootstrap.servers": self.servers, "log_level": 2, "socket.timeout.ms": 5000, **config}

    def _produce(self, *, idempotent: bool) -> None:
        config = {"enable.idempotence": idempotent, "compression.type": next(self._codecs), "linger.ms": 20}
        producer = Producer(self._config(**config))
        goes_on = self._piece()
        while goes_on():
            for _ in range(20):
                producer.produce(SHARED, os.urandom(200) * 4, key=os.urandom(4))
            producer.poll(0)
        producer.flush(30)

    def _transactions(self) -> None:
        producer = Producer(self._config(**{"transactional.id": "soak", "transaction.timeout.ms": 10_000}))
        producer.init_transactions(30)
        goes_on = self._piece()
        while goes_on():
            producer.begin_transaction()
            for _ in range(5):
                producer.produce(TRANSACTIONAL, os.urandom(100))
            if random.random() < 0.8:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)

    def _topics(self) -> None:
        topic = f"soak-passing-{next(self._numbers)}"
        create_topic(self.servers, topic, partitions=3, replication_factor=3)
        admin = AdminClient({"bootstrap.servers": self.servers})
        producer = Producer(self._config())
        producer.produce(topic, b"x" * 1000)
        producer.flush(10)
        admin.delete_topics([topic])[topic].result(30)
        self._stopping.wait(2)

    def _group_member(self) -> None:
        """Joins, reads for a while and leaves, so that the group rebalances all the time."""
        consumer = Consumer(
            self._config(
                **{
                    "group.id": "soak",
                    "session.timeout.ms": 6000,
                    "auto.offset.reset": "earliest",
                    "isolation.level": random.choice(["read_committed", "read_uncommitted"]),
                }
            )
        )
        try:
            consumer.subscribe([SHARED, TRANSACTIONAL])
            end = time.monotonic() + random.uniform(1, 6) * PIECE_SECONDS
            while time.monotonic() < end and not self._stopping.is_set():
                consumer.consume(500, timeout=0.2)
        finally:
            consumer.close()

    def _local_reader(self) -> None:
        with PartitionReader(self.servers, SHARED, random.randrange(PARTITIONS), offset="latest") as reader:
            goes_on = self._piece()
            while goes_on():
                reader.read_records(max_wait_ms=100)

    def _hostile(self) -> None:
        """Frames of garbage, with known and unknown APIs, cut off, or with a length that never comes."""
        host, _, port = random.choice(self.servers.split(",")).rpartition(":")
        with closing(socket.create_connection((host, int(port)), timeout=2)) as peer:
            body = random.randbytes(random.randrange(HOSTILE_BYTES_MAX))
            header = struct.pack(">hhi", random.randrange(70), random.randrange(13), 1)
            size = random.choice([len(header) + len(body), 1 << 30, -1, 3])
            peer.sendall(struct.pack(">i", size) + header + body)
            peer.settimeout(0.2)
            with suppress(TimeoutError):
                peer.recv(1000)
        self._stopping.wait(PAUSE_SECONDS)
