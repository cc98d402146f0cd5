"""The rates of stock clients are their quotas because they are throttled, and other clients are not slowed.

The rates are printed; run with -s to see them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import kafka.errors
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from raylog.client.admin.admin_client import AdminClient
from raylog.quotas.client_quotas import Identity
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

pytestmark = pytest.mark.compat

QUOTA = 200_000
"""Bytes per second. Within the ten to eleven seconds of all samples a client may use it unevenly."""
OFFERED = 1.3 * QUOTA
"""What the clients would send and receive without a quota. One with far more uses its quota in a burst, then waits."""
WINDOW_SECONDS = 11.0
SECONDS = 24.0
RECORD_BYTES = 10_000
TOPIC_RECORDS = int(1.1 * OFFERED * SECONDS / RECORD_BYTES)
Events = list[tuple[float, int]]
"""Bytes, and the time after which they were acknowledged or received."""


@pytest.fixture
def client_id(bootstrap_servers: str) -> Iterator[str]:
    """Of the clients with a quota."""
    name = f"limited-{uuid4().hex[:8]}"
    yield name
    with AdminClient(bootstrap_servers=bootstrap_servers, client_id="admin") as client:
        for found, quotas in client.describe_client_quotas({"client-id": name}).items():
            client.alter_client_quotas({found: dict.fromkeys(quotas)})


def limit(bootstrap_servers: str, client_id: str, **quotas: float) -> None:
    with AdminClient(bootstrap_servers=bootstrap_servers, client_id="admin") as client:
        client.alter_client_quotas({(("client-id", client_id),): quotas})


def settings(bootstrap_servers: str, client_id: str) -> dict[str, str | int]:
    return {"bootstrap.servers": bootstrap_servers, "client.id": client_id, "log_level": 3}


def turns() -> Iterator[float]:
    """The time of each record at the offered rate; time that is lost is not made up."""
    began = due = time.monotonic()
    while due - began < SECONDS:
        time.sleep(max(due - time.monotonic(), 0))
        yield time.monotonic() - began
        due = max(due, time.monotonic() - RECORD_BYTES / OFFERED) + RECORD_BYTES / OFFERED


def produced(bootstrap_servers: str, topic: str, client_id: str) -> Events:
    acknowledged: Events = []
    producer = Producer(
        settings(bootstrap_servers, client_id)
        | {"linger.ms": 0, "batch.num.messages": 1, "queue.buffering.max.messages": 5}
    )
    began = time.monotonic()

    def delivered(error: object, _: object) -> None:
        if error is None:
            acknowledged.append((time.monotonic() - began, RECORD_BYTES))

    for _ in turns():
        with suppress(BufferError):
            producer.produce(topic, b"x" * RECORD_BYTES, partition=0, on_delivery=delivered)
        producer.poll(0)
    producer.purge()
    return acknowledged


def consumed(bootstrap_servers: str, topic: str, client_id: str) -> Events:
    consumer = Consumer(
        settings(bootstrap_servers, client_id)
        | {
            "group.id": client_id,
            "enable.auto.commit": "false",
            "fetch.message.max.bytes": RECORD_BYTES,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    received: Events = []
    for passed in turns():
        message = consumer.poll(0)
        if message is not None and message.error() is None:
            received.append((passed, len(message.value() or b"")))
    consumer.close()
    return received


def rates(events: Events) -> list[float]:
    """Bytes per second in every window of the run that lies within it."""
    ends = [WINDOW_SECONDS + step / 2 for step in range(int(2 * (SECONDS - WINDOW_SECONDS)))]
    return [
        sum(size for passed, size in events if end - WINDOW_SECONDS < passed <= end) / WINDOW_SECONDS for end in ends
    ]


def test_clients_are_held_to_their_quotas_and_others_are_not_slowed(
    cluster: RunningCluster, bootstrap_servers: str, client_id: str
) -> None:
    filled, written = f"filled-{client_id}", f"written-{client_id}"
    create_topic(bootstrap_servers, filled, partitions=1)
    create_topic(bootstrap_servers, written, partitions=1)
    filler = Producer(settings(bootstrap_servers, "filler") | {"batch.num.messages": 1})
    for _ in range(TOPIC_RECORDS):
        filler.produce(filled, b"x" * RECORD_BYTES, partition=0)
        filler.poll(0)
    assert filler.flush(60) == 0
    limit(bootstrap_servers, client_id, producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
    with ThreadPoolExecutor(4) as threads:
        limited = [
            threads.submit(produced, bootstrap_servers, written, client_id),
            threads.submit(consumed, bootstrap_servers, filled, client_id),
        ]
        producer = threads.submit(produced, bootstrap_servers, written, "other")
        consumer = threads.submit(consumed, bootstrap_servers, filled, "other")
    others = [min(rates(client.result())) for client in (producer, consumer)]
    sys.stdout.write(f"without a quota: at least {min(others):,.0f} of {OFFERED:,.0f} B/s\n")
    busy = min(others) < 0.97 * OFFERED  # the machine slows every client
    for client in limited:
        measured = rates(client.result())
        sys.stdout.write(f"quota {QUOTA:,} B/s: {min(measured):,.0f} to {max(measured):,.0f} B/s\n")
        assert min(measured) > (0.4 if busy else 0.9) * QUOTA
        assert max(measured) < 1.1 * QUOTA
    throttled = {each.identity for broker in cluster.brokers for each in broker.throttled()}
    assert {each for each in throttled if each.client_id in (client_id, "other")} == {Identity(None, client_id)}


def test_changes_of_topics_over_the_quota_are_refused(bootstrap_servers: str, client_id: str) -> None:
    limit(bootstrap_servers, client_id, controller_mutation_rate=1)
    stock = KafkaAdminClient(bootstrap_servers=bootstrap_servers, client_id=client_id)
    stock.create_topics([NewTopic(f"{client_id}-a", num_partitions=20, replication_factor=1)])
    with pytest.raises(kafka.errors.ThrottlingQuotaExceededError):
        stock.create_topics([NewTopic(f"{client_id}-b", num_partitions=1, replication_factor=1)])
    stock.close()
