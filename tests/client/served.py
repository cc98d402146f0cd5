"""Clusters that raylog's clients are tested against: production brokers of ours, and Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.topics import NewTopic
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS

LISTENERS = ("PLAINTEXT", "SASL_SSL")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";'
DOORS = ("unix", "tcp", "sasl-tls")


@dataclass
class Target:
    """A cluster without security."""

    plain: str
    """Its bootstrap.servers."""
    topics: int = 0
    groups: int = 0

    def settings(self, door: str = "unix") -> dict[str, Any]:
        return {"bootstrap_servers": self.plain}

    def new_topic(self, partitions: int = 1, **configs: str) -> str:
        self.topics += 1
        name = f"topic-{self.topics}"
        given = {key.replace("_", "."): value for key, value in configs.items()}
        with AdminClient(bootstrap_servers=self.plain) as admin:
            admin.create_topics(NewTopic(name, partitions, 1, configs=given))
            deadline = time.monotonic() + HANG_SECONDS
            while name not in {each.name for each in admin.list_topics()}:  # other brokers know it later
                assert time.monotonic() < deadline
        return name

    def new_group(self) -> str:
        self.groups += 1
        return f"group-{self.groups}"

    def read(self, topic: str, count: int, partition: int = 0, *, settings: dict[str, Any] | None = None) -> list[Any]:
        """The first messages of the partition, by librdkafka."""
        consumer = Consumer(
            {"bootstrap.servers": self.plain, "group.id": "tests", "check.crcs": True} | (settings or {})
        )
        try:
            consumer.assign([Position(topic, partition, 0)])
            found: list[Any] = []
            while len(found) < count:
                found += consumer.consume(count - len(found), 20)
            return found
        finally:
            consumer.close()


@dataclass(kw_only=True)
class Served(Target):
    """A broker of ours, with a second listener that has TLS and log-ins."""

    running: RunningCluster
    certificates: Certificates

    def settings(self, door: str = "unix") -> dict[str, Any]:
        if door != "sasl-tls":
            return {"bootstrap_servers": self.plain}
        return {
            "bootstrap_servers": f"localhost:{self.running.broker.endpoints['SASL_SSL'].port}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": JAAS,
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(self.certificates.trusted),
        }


@contextmanager
def serve(folder: Path) -> Iterator[Served]:
    certificates = Certificates.new(folder / "certificates")
    config = {
        "listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("broker", "localhost", "127.0.0.1")),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS.replace(";", ' user_alice="secret";'),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.min.heartbeat.interval.ms": 50,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.session.timeout.ms": 6000,
        "group.consumer.session.timeout.ms": 6000,
    }
    with cluster_thread(config, folder / "data") as running:
        plain = f"localhost:{running.broker.endpoints['PLAINTEXT'].port}"
        yield Served(plain, running=running, certificates=certificates)
