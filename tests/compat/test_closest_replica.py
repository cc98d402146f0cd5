"""A stock consumer with client.rack fetches from the replica on its rack."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from raylog.config.replication import RACK_AWARE_REPLICA_SELECTOR
from raylog.protocol import registry
from tests.broker.test_lifecycle import listen_in
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread

pytestmark = pytest.mark.compat

TOPIC = "racks"
HERE, THERE = "here", "there"
PATIENCE_SECONDS = 30.0


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[RunningCluster]:
    """Two brokers on two racks."""
    config = {"replica.selector.class": RACK_AWARE_REPLICA_SELECTOR}
    with cluster_thread(config, tmp_path / "racks", brokers=2, racks=[HERE, THERE]) as running:
        yield running


def write(cluster: RunningCluster, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, found
        for message in consumer.consume(count - len(found), 0.1):
            assert message.error() is None, message.error()
            found.append(message.value())
    return found


def test_it_fetches_from_its_rack(racks: RunningCluster) -> None:
    create_topic(racks.bootstrap_servers, TOPIC, partitions=1, replication_factor=2)
    leader_id = racks.broker.image.topics[TOPIC].partitions[0].leader
    leader, follower = racks.brokers[leader_id], racks.brokers[1 - leader_id]
    rack = follower.image.brokers[follower.identity.node_id].registration.rack
    asked: list[Any] = racks.do(lambda: listen_in(follower, registry.FETCH))
    asked_of_leader: list[Any] = racks.do(lambda: listen_in(leader, registry.FETCH))
    consumer = Consumer(
        {
            "bootstrap.servers": racks.bootstrap_servers,
            "group.id": "racks",
            "client.rack": rack,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    values = [b"%d" % number for number in range(500)]
    write(racks, *values)
    assert read(consumer, len(values)) == values
    more = [b"more %d" % number for number in range(500)]
    write(racks, *more)
    assert read(consumer, len(more)) == more
    consumer.close()
    read_there = [each.fetch_offset for request in asked for topic in request.topics for each in topic.partitions]
    assert max(read_there) >= len(values), "it has read on there"
    of_consumers = [request for request in asked_of_leader if request.rack_id == rack]
    read_at_leader = [
        each.fetch_offset for request in of_consumers for topic in request.topics for each in topic.partitions
    ]
    assert set(read_at_leader) == {0}, "the leader has sent it on, and was not asked again"
