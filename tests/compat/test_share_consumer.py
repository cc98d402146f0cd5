"""librdkafka's share consumer: records are shared by the members of a group, acknowledged, released and rejected."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

import raylog
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread

pytestmark = pytest.mark.compat

LIBRARY = "confluent-kafka"
ANSWER_SECONDS = 20.0
CONFIG = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.min.session.timeout.ms": 1000,
    "group.share.session.timeout.ms": 3000,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 2000,
    "offsets.topic.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
}
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("share-groups"), brokers=3) as running:
        yield running


@pytest.fixture
def group(bootstrap_servers: str) -> str:
    """A group that begins with the earliest records."""
    name = f"shared-{next(_NUMBERS)}"
    with raylog.AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.incremental_alter_configs(
            {ConfigResource(ConfigResourceType.GROUP, name): {"share.auto.offset.reset": "earliest"}}
        )
    return name


def consumer(bootstrap_servers: str, group: str, topic: str, **more: Any) -> ShareConsumer:
    made = ShareConsumer({"bootstrap.servers": bootstrap_servers, "group.id": group, **more})
    made.subscribe([topic])
    return made


def produce(bootstrap_servers: str, topic: str, count: int, *, start: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(start, start + count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(ANSWER_SECONDS) == 0


def poll(member: ShareConsumer, count: int) -> list[Any]:
    """At least `count` messages."""
    found: list[Any] = []
    deadline = time.monotonic() + ANSWER_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages"
        found += member.poll(0.2)
    assert all(message.error() is None for message in found), [message.error() for message in found]
    return found


def test_acknowledged_records_are_not_delivered_again(bootstrap_servers: str, group: str) -> None:
    topic = f"shared-{group}"
    create_topic(bootstrap_servers, topic, partitions=3)
    produce(bootstrap_servers, topic, 30)
    with consumer(bootstrap_servers, group, topic) as first:
        assert {message.value() for message in poll(first, 30)} == {str(n).encode() for n in range(30)}
        assert set(first.commit_sync(ANSWER_SECONDS).values()) == {None}
    produce(bootstrap_servers, topic, 3, start=30)
    with consumer(bootstrap_servers, group, topic) as second:
        assert {message.value() for message in poll(second, 3)} == {b"30", b"31", b"32"}


def test_released_records_come_again_and_rejected_ones_do_not(bootstrap_servers: str, group: str) -> None:
    topic = f"shared-{group}"
    create_topic(bootstrap_servers, topic, partitions=1)
    produce(bootstrap_servers, topic, 3)
    with consumer(bootstrap_servers, group, topic, **{"share.acknowledgement.mode": "explicit"}) as member:
        kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
        for message, kind in zip(poll(member, 3), kinds, strict=True):
            member.acknowledge(message, kind)
        assert set(member.commit_sync(ANSWER_SECONDS).values()) == {None}
        (again,) = poll(member, 1)
        assert again.value() == b"1"
        member.acknowledge(again, AcknowledgeType.ACCEPT)
        produce(bootstrap_servers, topic, 1, start=3)
        (last,) = poll(member, 1)
        assert last.value() == b"3"
        member.acknowledge(last, AcknowledgeType.ACCEPT)


def test_two_members_share_one_partition(bootstrap_servers: str, group: str) -> None:
    topic = f"shared-{group}"
    create_topic(bootstrap_servers, topic, partitions=1)
    seen: list[str] = []
    counts = [0, 0]
    with consumer(bootstrap_servers, group, topic) as one, consumer(bootstrap_servers, group, topic) as other:
        deadline = time.monotonic() + 2 * ANSWER_SECONDS
        sent = 0
        while not all(counts) or len(seen) < sent:
            assert time.monotonic() < deadline, counts
            if not all(counts):
                produce(bootstrap_servers, topic, 5, start=sent)
                sent += 5
            for index, member in enumerate((one, other)):
                messages = list(member.poll(0.1))
                counts[index] += len(messages)
                seen += [str(message.value()) for message in messages]
    assert len(seen) == len(set(seen)), "a record was acquired twice"
