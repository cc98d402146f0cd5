"""Large values in Ray's object store outlive their producer, and are named when they are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.value_store import RayValueStore
from raylog.client.errors import ValueMissingError
from raylog.core.errors import KafkaError
from tests.compat.topics import create_topic

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

LARGE = bytes(range(256)) * 80_000


@pytest.fixture(scope="module")
def servers(ray_runtime: None) -> Iterator[str]:
    with raylog.start("values") as cluster:
        create_topic(cluster.bootstrap_servers, "t", partitions=1)
        yield cluster.bootstrap_servers


@ray.remote
class Sender:
    """A process that ends after it has sent."""

    def send(self, servers: str, topic: str, value: bytes) -> int:
        store = RayValueStore("values", bytes_max=2 * len(value), age_ms_max=3_600_000)
        with raylog.Producer(bootstrap_servers=servers, large_message_enabled=True, value_store=store) as producer:
            return producer.send(topic, value).result().offset


def polled(consumer: raylog.Consumer) -> list[raylog.ConsumerRecord]:
    """The next records; waits for them."""
    records: list[raylog.ConsumerRecord] = []
    while not records:
        records = consumer.poll()
    return records


def test_values_outlive_their_producer_and_are_named_when_they_are_lost(servers: str) -> None:
    sender: Any = Sender.remote()  # type: ignore[attr-defined]
    offset = ray.get(sender.send.remote(servers, "t", LARGE))
    ray.kill(sender)
    store = RayValueStore("values", bytes_max=1, age_ms_max=1)  # finds the owner, which keeps its limits
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "large_message_enabled": True, "value_store": store}
    with raylog.Consumer(bootstrap_servers=servers, **settings) as consumer:
        consumer.assign([("t", 0)])
        assert [(record.offset, record.value == LARGE) for record in polled(consumer)] == [(offset, True)]
        with raylog.Producer(bootstrap_servers=servers, large_message_enabled=True, value_store=store) as producer:
            for _ in range(2):
                producer.send("t", LARGE).result()
            with pytest.raises(KafkaError, match="more than the store may hold"):
                producer.send("t", 3 * LARGE)
            consumer.seek(("t", 0), 0)
            with pytest.raises(ValueMissingError, match=r"t-0, offset 0: the value t/\w+ cannot be fetched: its owner"):
                polled(consumer)
            store.close()
            consumer.seek(("t", 0), 1)
            with pytest.raises(ValueMissingError, match=r"t-0, offset 1: .* cannot be fetched: ActorDiedError"):
                polled(consumer)
            with pytest.raises(KafkaError, match="was not written"):
                producer.send("t", LARGE)
