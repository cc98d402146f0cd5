"""MirrorMaker 2 copies topics from raylog to Apache Kafka and back, exactly once, while it and a broker are killed.

Records, changes of topic configurations and the offsets of a group arrive on the other side. Its internal topics on
raylog are compacted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from raylog.client.admin.admin_client import AdminClient as OwnAdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from tests.kafka.history import ANSWER_SECONDS, QUIET, Server, consume, create_topic, flush
from tests.support.forms import by_form
from tests.support.hang import wait_until
from tests.support.java_process import JavaProcess, killed_at_the_end, write_properties
from tests.support.kafka_peer import KafkaPeer, kafka_peer
from tests.support.node_cluster import COUNT, NodeCluster
from tests.support.ports import free_port

pytestmark = pytest.mark.kafka

ROUNDS = by_form(1, long=10)
PARTITIONS = 3
RECORDS_PER_SECOND = 200
TO_KAFKA, TO_RAYLOG = "orders", "items"
"""The topics that are copied."""
GROUP = "billing"
RETENTION_MS = "987654321"
INTERNAL = (
    "heartbeats",
    "kafka.checkpoints.internal",
    "mm2-configs.kafka.internal",
    "mm2-offset-syncs.kafka.internal",
    "mm2-offsets.kafka.internal",
    "mm2-status.kafka.internal",
)
"""On raylog."""


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[KafkaPeer]:
    with kafka_peer(tmp_path / "kafka") as peer:
        peer.start()
        yield peer


def settings(cluster: NodeCluster, peer: KafkaPeer) -> dict[str, object]:
    given: dict[str, object] = {
        "clusters": "raylog, kafka",
        "raylog.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.bootstrap.servers": peer.bootstrap_servers,
        "raylog->kafka.enabled": "true",
        "raylog->kafka.topics": TO_KAFKA,
        "kafka->raylog.enabled": "true",
        "kafka->raylog.topics": TO_RAYLOG,
        "groups": GROUP,
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": 10,
    }
    for what in ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.group.offsets", "emit.checkpoints"):
        given[f"{what}.interval.seconds"] = 1
    for target, replicas in (("raylog", COUNT), ("kafka", 1)):
        given[f"{target}.exactly.once.source.support"] = "enabled"
        given[f"{target}.session.timeout.ms"] = 6000
        given[f"{target}.heartbeat.interval.ms"] = 1000
        given[f"{target}.offset.storage.segment.ms"] = 1000
        for storage in ("config", "offset", "status"):
            given[f"{target}.{storage}.storage.replication.factor"] = replicas
    for flow, source_replicas, target_replicas in (("raylog->kafka", COUNT, 1), ("kafka->raylog", 1, COUNT)):
        given[f"{flow}.replication.factor"] = target_replicas
        given[f"{flow}.checkpoints.topic.replication.factor"] = target_replicas
        given[f"{flow}.heartbeats.topic.replication.factor"] = target_replicas
        given[f"{flow}.offset-syncs.topic.replication.factor"] = source_replicas
    return given


class Feed:
    """Writes to both topics until it is stopped."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self.given = 0
        """Records of each topic, spread evenly over the partitions."""
        self._failed: list[KafkaError] = []
        config: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 20, **QUIET}
        self._producers = {
            topic: Producer({"bootstrap.servers": server.bootstrap_servers, **config})
            for topic, server in servers.items()
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        for producer in self._producers.values():
            flush(producer)
        assert self._failed == []

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for _ in range(RECORDS_PER_SECOND // 10):
                for topic, producer in self._producers.items():
                    producer.produce(
                        topic,
                        partition=self.given % PARTITIONS,
                        key=f"key-{self.given % 100}",
                        value=f"{topic}-{self.given}",
                        headers=[("number", str(self.given).encode())],
                        on_delivery=self._delivered,
                    )
                    producer.poll(0)
                self.given += 1

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failed.append(error)


class Copy:
    """The copy of a topic, which is read as it grows."""

    def __init__(self, server: Server, topic: str) -> None:
        self.server, self.topic = server, topic
        self._count = 0
        self._consumer: Consumer | None = None

    def until_complete(self, feed: Feed) -> None:
        """All that had been given before the call has arrived."""
        goal = feed.given
        if self._consumer is None:
            admin = AdminClient({"bootstrap.servers": self.server.bootstrap_servers})
            wait_until(lambda: self.topic in admin.list_topics(timeout=ANSWER_SECONDS).topics, lambda: self.topic)
            self._consumer = group_consumer(self.server)
            self._consumer.assign([TopicPartition(self.topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
        consumer = self._consumer

        def complete() -> bool:
            self._count += sum(message.error() is None for message in consumer.consume(1000, timeout=0.2))
            return self._count >= goal

        wait_until(complete, lambda: f"{self._count} records of {goal} in {self.topic}", pause=0)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def test_topics_are_copied_both_ways(
    cluster: NodeCluster, peer: KafkaPeer, tmp_path: Path, say: Callable[[str], None]
) -> None:
    origins: dict[str, Server] = {TO_KAFKA: cluster, TO_RAYLOG: peer}
    copies = {TO_KAFKA: Copy(peer, f"raylog.{TO_KAFKA}"), TO_RAYLOG: Copy(cluster, f"kafka.{TO_RAYLOG}")}

    def until_complete() -> None:
        for copy in copies.values():
            copy.until_complete(feed)

    create_topic(cluster, TO_KAFKA, partitions=PARTITIONS, replication_factor=COUNT)
    create_topic(peer, TO_RAYLOG, partitions=PARTITIONS)
    folder = tmp_path / "mirror-maker"
    file = write_properties(folder / "mirror-maker.properties", settings(cluster, peer))
    mirror = JavaProcess(folder, "org.apache.kafka.connect.mirror.MirrorMaker", file)
    began = time.monotonic()
    with killed_at_the_end([mirror]):
        mirror.start()
        feed = Feed(origins)
        until_complete()
        for topic, server in origins.items():
            change_retention(server, topic)
        for _ in range(ROUNDS):
            mirror.kill()
            mirror.start()
            until_complete()
            broker = cluster.leader(f"kafka.{TO_RAYLOG}")
            broker.kill()
            until_complete()
            cluster.start([broker])
            until_complete()
        read_half(origins)
        feed.stop()
        until_complete()
        for topic, copy in copies.items():
            wait_until_retention_is_changed(copy)
            check_group(origins[topic], topic, copy)
            copy.close()
        mirror.stop()
    seconds = time.monotonic() - began
    say(f"{ROUNDS} kills of MirrorMaker and of a broker in {seconds:.0f} s; {feed.given} records each way")

    for topic, copy in copies.items():
        for partition in range(PARTITIONS):
            original = consume(origins[topic], topic, partition=partition)
            copied = consume(copy.server, copy.topic, partition=partition, isolation_level="read_committed")
            assert [row._replace(offset=0) for row in copied] == [row._replace(offset=0) for row in original]
    for topic in INTERNAL:
        assert config_of(cluster, topic)["cleanup.policy"] == "compact", topic


def group_consumer(server: Server) -> Consumer:
    settings = {"group.id": GROUP, "enable.auto.commit": False, "isolation.level": "read_committed", **QUIET}
    return Consumer({"bootstrap.servers": server.bootstrap_servers, **settings})


def read_half(origins: dict[str, Server]) -> None:
    """The group commits the middle of each partition but the first, and the end of that."""
    for topic, server in origins.items():
        consumer = group_consumer(server)
        offsets = []
        for partition in range(PARTITIONS):
            bounds = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS)
            assert bounds is not None
            end = bounds[1]
            offsets.append(TopicPartition(topic, partition, end if partition == 0 else end // 2))
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()


def committed(server: Server, topic: str) -> list[int]:
    consumer = group_consumer(server)
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return [tp.offset for tp in consumer.committed(partitions, timeout=ANSWER_SECONDS)]
    finally:
        consumer.close()


def check_group(origin: Server, topic: str, copy: Copy) -> None:
    """A consumer that goes on with the copy misses no record."""

    def unread(server: Server, topic: str, partition: int, offset: int) -> list[bytes | None]:
        rows = consume(server, topic, partition=partition, isolation_level="read_committed")
        return [row.value for row in rows if row.offset >= offset]

    wait_until(
        lambda: min(committed(copy.server, copy.topic)) > 0,
        lambda: f"offsets of {copy.topic}: {committed(copy.server, copy.topic)}",
        pause=0.5,
    )
    offsets = zip(committed(origin, topic), committed(copy.server, copy.topic), strict=True)
    for partition, (original, translated) in enumerate(offsets):
        left = unread(origin, topic, partition, original)
        found = unread(copy.server, copy.topic, partition, translated)
        assert found[len(found) - len(left) :] == left


def change_retention(server: Server, topic: str) -> None:
    with OwnAdminClient(bootstrap_servers=server.bootstrap_servers) as client:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        client.incremental_alter_configs({resource: {"retention.ms": RETENTION_MS}})


def wait_until_retention_is_changed(copy: Copy) -> None:
    def retention_ms() -> str | None:
        return config_of(copy.server, copy.topic)["retention.ms"]

    wait_until(lambda: retention_ms() == RETENTION_MS, lambda: f"retention.ms of {copy.topic}: {retention_ms()}")


def config_of(server: Server, topic: str) -> dict[str, str | None]:
    with OwnAdminClient(bootstrap_servers=server.bootstrap_servers) as client:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in client.describe_configs(resource)[resource].items()}
