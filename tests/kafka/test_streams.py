"""Kafka Streams counts words and joins orders with customers on three brokers, while instances and brokers are killed.

The application, streams/StreamsApplication.java, has two instances with standby tasks. Its changelogs are rolled and
compacted, and its repartition topics purged, all the time. With exactly_once_v2 every count appears once and in order;
with at_least_once nothing is lost. With the protocol streams the coordinator assigns the tasks and creates the internal
topics (KIP-1071). The usual form kills each instance, and the broker that leads a changelog, once, and `--long` ten
times.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from raylog.logstore.checkpoint import CLEANER_OFFSET_FILE
from tests.kafka.history import ANSWER_SECONDS, QUIET, consume, create_topic, flush
from tests.support.forms import by_form
from tests.support.hang import wait_until
from tests.support.java_process import JavaProcess, killed_at_the_end, write_properties
from tests.support.kafka_peer import KAFKA_VERSION, NEWER_KAFKA_VERSION, class_path
from tests.support.node_cluster import NodeCluster

pytestmark = pytest.mark.kafka

ROUNDS = by_form(1, long=10)
APPLICATION = "judge"
PARTITIONS = 3
INPUTS = ("lines", "orders")
OUTPUTS = ("counts", "enriched", "sums")
REGIONS = ("north", "east", "south", "west")
CUSTOMERS = {f"customer-{number}": REGIONS[number % 4] for number in range(100)}
LINES_PER_SECOND = 150
ORDERS_PER_SECOND = 50
COMMIT_MS = 500
SETTINGS = {
    "application.id": APPLICATION,
    "num.stream.threads": 1,
    "statestore.cache.max.bytes": 0,  # every update is a record
    "repartition.purge.interval.ms": 1000,
    "topic.segment.ms": 1000,
    "topic.min.cleanable.dirty.ratio": 0.01,
    "commit.interval.ms": COMMIT_MS,
}
OF_PROTOCOL: dict[str, dict[str, object]] = {
    "classic": {
        "num.standby.replicas": 1,
        "main.consumer.session.timeout.ms": 6000,
        "main.consumer.heartbeat.interval.ms": 1000,
    },
    "streams": {"group.protocol": "streams"},
}
VERSIONS = {"classic": KAFKA_VERSION, "streams": NEWER_KAFKA_VERSION}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled application."""
    folder = tmp_path_factory.mktemp("classes")
    source = Path(__file__).parent / "streams" / "StreamsApplication.java"
    subprocess.run(["javac", "-d", folder, "-cp", class_path(), source], check=True)
    return folder


class Feed:
    """Writes lines and orders until it is stopped, and knows what must come out."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.lines = 0
        self.words: Counter[str] = Counter()
        self.orders: dict[str, str] = {}
        self.sums: Counter[str] = Counter()
        self._random = random.Random(0)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "partitioner": "murmur2_random",  # as the Java client's, since both sides of a join must agree
                **QUIET,
            }
        )
        self._failed: list[KafkaError] = []
        for customer, region in CUSTOMERS.items():
            self._put("customers", customer, region)
        flush(self._producer)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        wait_until(lambda: not self._producer.flush(1), lambda: "the input was not acknowledged")
        assert self._failed == []

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for _ in range(LINES_PER_SECOND // 10):
                words = [f"word-{int(self._random.paretovariate(0.5)) % 1000}" for _ in range(5)]
                self.lines += 1
                self.words.update(words)
                self._put("lines", None, " ".join(words))
            for _ in range(ORDERS_PER_SECOND // 10):
                number, customer = f"order-{len(self.orders)}", self._random.choice(list(CUSTOMERS))
                amount, region = self._random.randrange(1000), CUSTOMERS[customer]
                self.orders[number] = f"{number} {customer} {amount} {region}"
                self.sums[region] += amount
                self._put("orders", number, f"{customer} {amount}")
            self._producer.poll(0)

    def _put(self, topic: str, key: str | None, value: str) -> None:
        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                self._failed.append(error)

        self._producer.produce(topic, key=key, value=value, on_delivery=delivered)


class Outputs:
    """What the application has written so far, by topic and key, in the order of the partition."""

    def __init__(self, bootstrap_servers: str, applications: list[JavaProcess]) -> None:
        self._applications = applications
        self._counts: Counter[tuple[str, int]] = Counter()
        self.values: dict[str, dict[str, list[str]]] = {topic: defaultdict(list) for topic in OUTPUTS}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "outputs",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                **QUIET,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for topic in OUTPUTS for number in range(PARTITIONS)]
        )

    def read(self) -> None:
        for message in self._consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
                    raise KafkaException(error)
                continue
            topic, partition, key, value = message.topic(), message.partition(), message.key(), message.value()
            assert topic is not None
            assert partition is not None
            assert key is not None
            assert value is not None
            self._counts[topic, partition] += 1
            self.values[topic][key.decode()].append(value.decode())

    def until_more(self, count: int = 100) -> None:
        """In each partition, so that every task works."""
        goals = {
            (topic, n): self._counts[topic, n] + count for topic in ("counts", "enriched") for n in range(PARTITIONS)
        }
        self._read_until(lambda: all(self._counts[tp] >= goal for tp, goal in goals.items()), lambda: f"{self._counts}")

    def until_complete(self, feed: Feed) -> None:
        self._read_until(lambda: not self._missing(feed), lambda: f"missing: {self._missing(feed)[:20]}")

    def _missing(self, feed: Feed) -> list[str]:
        """Words and regions with too low a number, and orders."""
        counts, enriched, sums = (self.values[topic] for topic in OUTPUTS)
        return [
            *(word for word, count in feed.words.items() if int(counts.get(word, ["0"])[-1]) < count),
            *(region for region, total in feed.sums.items() if int(sums.get(region, ["0"])[-1]) < total),
            *(number for number in feed.orders if number not in enriched),
        ]

    def close(self) -> None:
        self._consumer.close()

    def _read_until(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        def holds() -> bool:
            self.read()
            for application in self._applications:
                assert "state ERROR" not in application.log(), application.log()[-8000:]
            return condition()

        wait_until(holds, what, pause=0)


@pytest.mark.parametrize("protocol", ["classic", "streams"])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_counts_are_right_after_kills(
    guarantee: str, protocol: str, cluster: NodeCluster, classes: Path, tmp_path: Path, say: Callable[[str], None]
) -> None:
    for topic in (*INPUTS, *OUTPUTS):
        create_topic(cluster, topic, partitions=PARTITIONS, replication_factor=3)
    compacted = {"cleanup.policy": "compact"}
    create_topic(cluster, "customers", partitions=PARTITIONS, replication_factor=3, config=compacted)
    applications = []
    for number in range(2):
        path = tmp_path / f"instance-{number}"
        own = {"bootstrap.servers": cluster.bootstrap_servers, "state.dir": path / "state"}
        properties = {**SETTINGS, **OF_PROTOCOL[protocol], **own, "processing.guarantee": guarantee}
        file = write_properties(path / "application.properties", properties)
        version = VERSIONS[protocol]
        applications.append(JavaProcess(path, "StreamsApplication", file, class_paths=[str(classes)], version=version))
    began = time.monotonic()
    with killed_at_the_end(applications):
        for application in applications:
            application.start()
        feed, outputs = Feed(cluster.bootstrap_servers), Outputs(cluster.bootstrap_servers, applications)
        for _ in range(ROUNDS):
            for application in applications:
                outputs.until_more()
                time.sleep(0.6 * COMMIT_MS / 1000)  # what was read was just committed: the next transaction has records
                application.kill()
                outputs.until_more()
                application.start()
            outputs.until_more()
            broker = cluster.leader(f"{APPLICATION}-counted-changelog")
            broker.kill()
            outputs.until_more()
            cluster.start([broker])
        outputs.until_more()
        feed.stop()
        outputs.until_complete(feed)
        for application in applications:
            application.stop()
    outputs.close()
    seconds = time.monotonic() - began

    cluster.wait_until_healthy(f"{APPLICATION}-counted-changelog")
    found = {topic: read_again(cluster, topic) for topic in OUTPUTS}
    repeated = sum(len(values) for values in found["enriched"].values()) - len(feed.orders)
    counted = sum(int(values[-1]) for values in found["counts"].values()) - feed.words.total()
    kills = f"{ROUNDS} brokers and {2 * ROUNDS} instances killed in {seconds:.0f} s"
    given = f"{feed.lines} lines, {feed.words.total()} words, {len(feed.orders)} orders"
    say(f"{guarantee}, {protocol}: {kills}; {given}; {counted} words and {repeated} orders repeated")
    check(feed, found, exactly=guarantee == "exactly_once_v2")
    check_internal_topics(cluster)


def read_again(cluster: NodeCluster, topic: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = defaultdict(list)
    for partition in range(PARTITIONS):
        for row in consume(cluster, topic, isolation_level="read_committed", partition=partition):
            assert row.key is not None
            assert row.value is not None
            values[row.key.decode()].append(row.value.decode())
    return values


def check(feed: Feed, found: dict[str, dict[str, list[str]]], *, exactly: bool) -> None:
    counts, enriched, sums = (found[topic] for topic in OUTPUTS)
    assert set(counts) == set(feed.words)
    assert {number: set(orders) for number, orders in enriched.items()} == {
        number: {order} for number, order in feed.orders.items()
    }
    if exactly:
        for word, values in counts.items():
            assert values == [str(count) for count in range(1, feed.words[word] + 1)], word
        assert [number for number, orders in enriched.items() if len(orders) > 1] == []
        assert {region: int(values[-1]) for region, values in sums.items()} == feed.sums
    else:
        for word, values in counts.items():
            assert int(values[-1]) >= feed.words[word], word
        assert all(int(sums[region][-1]) >= total for region, total in feed.sums.items())


def check_internal_topics(cluster: NodeCluster) -> None:
    """Changelogs were compacted, and repartition topics purged."""
    cleaned = "".join(path.read_text() for path in cluster.data_dir.glob(f"broker-*/{CLEANER_OFFSET_FILE}"))
    for store in ("counted", "summed"):
        assert f"{APPLICATION}-{store}-changelog" in cleaned, cleaned
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "purged"})
    for name in ("words", "orders-by-customer"):
        tp = TopicPartition(f"{APPLICATION}-{name}-repartition", 0)
        offsets = consumer.get_watermark_offsets(tp, timeout=ANSWER_SECONDS)
        assert offsets is not None
        assert offsets[0] > 0
    consumer.close()
