"""Records are written once and in order by idempotent producers, with each level of acks, and by older requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.compat.aiokafka_client import Aiokafka
from tests.compat.confluent import Confluent
from tests.compat.kafka_python import KafkaPython
from tests.compat.kcat import Kcat
from tests.compat.row import Row
from tests.compat.stored import stored_batches
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

pytestmark = pytest.mark.compat

RECORDS = 2000
"""With their values more than a megabyte, the batch size of librdkafka."""
ARRIVAL_SECONDS = 60.0
ROWS = [Row(0, number, b"%d" % number, b"value %d " % number * 60) for number in range(RECORDS)]
VALUES = [row.value for row in ROWS]

Write = Callable[[str, str, dict[str, object]], None]
"""(bootstrap_servers, topic, settings): writes ROWS to partition 0."""


def by_kcat(bootstrap_servers: str, topic: str, settings: dict[str, object]) -> None:
    typed = b"".join((row.key or b"") + b"\t" + (row.value or b"") + b"\n" for row in ROWS)
    switches = [part for name, value in settings.items() for part in ("-X", f"{name}={str(value).lower()}")]
    Kcat(bootstrap_servers).run(["-P", "-t", topic, "-p", "0", "-K", "\\t", *switches], typed=typed)


def by_confluent(bootstrap_servers: str, topic: str, settings: dict[str, object]) -> None:
    Confluent(bootstrap_servers).produce(topic, 0, ROWS, "none", **settings)


def by_kafka_python(bootstrap_servers: str, topic: str, settings: dict[str, object]) -> None:
    KafkaPython(bootstrap_servers).produce(topic, 0, ROWS, "none", **settings)


def by_aiokafka(bootstrap_servers: str, topic: str, settings: dict[str, object]) -> None:
    Aiokafka(bootstrap_servers).produce(topic, 0, ROWS, "none", **settings)


IDEMPOTENT: Final[list[tuple[Write, dict[str, object]]]] = [
    (by_kcat, {"enable.idempotence": True}),
    (by_confluent, {"enable.idempotence": True}),
    (by_kafka_python, {}),  # its default
    (by_aiokafka, {"enable_idempotence": True}),
]


@pytest.mark.parametrize(("write", "settings"), IDEMPOTENT)
def test_idempotent_producers_set_sequence_numbers(
    bootstrap_servers: str, cluster: RunningCluster, write: Write, settings: dict[str, object]
) -> None:
    topic = f"idempotent-{write.__name__}"
    create_topic(bootstrap_servers, topic, partitions=1)
    write(bootstrap_servers, topic, settings)
    batches = list(stored_batches(cluster, topic, 0))
    assert len(batches) >= 2
    assert len({batch.header.producer_id for batch in batches}) == 1
    expected_sequence = 0
    for batch in batches:
        header = batch.header
        assert header.producer_id >= 0
        assert (header.producer_epoch, header.base_sequence) == (0, expected_sequence)
        expected_sequence += header.record_count
    assert [row.value for row in Confluent(bootstrap_servers).consume(topic, 1)] == VALUES


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("write", [by_kcat, by_confluent, by_kafka_python, by_aiokafka])
def test_every_level_of_acks(bootstrap_servers: str, cluster: RunningCluster, write: Write, acks: int) -> None:
    topic = f"acks-{acks}-{write.__name__}"
    create_topic(bootstrap_servers, topic, partitions=1)
    in_python = write in (by_kafka_python, by_aiokafka)
    write(bootstrap_servers, topic, {"acks": "all" if in_python and acks == -1 else acks})
    deadline = time.monotonic() + (ARRIVAL_SECONDS if acks == 0 else 0)
    while sum(len(batch.rows) for batch in stored_batches(cluster, topic, 0)) < RECORDS:
        assert time.monotonic() < deadline, "acknowledged before it was written" if acks else "never arrived"
        time.sleep(0.01)
    assert [row.value for row in Confluent(bootstrap_servers).consume(topic, 1)] == VALUES


@pytest.mark.parametrize("api_version", [(0, 11), (1, 0), (2, 0), (2, 4), (3, 0)])
def test_requests_of_older_releases(bootstrap_servers: str, api_version: tuple[int, int]) -> None:
    """kafka-python uses the request versions of that release."""
    topic = "as-of-" + "-".join(str(part) for part in api_version)
    client = KafkaPython(bootstrap_servers)
    client.produce(topic, 0, ROWS, "gzip", api_version=api_version)
    assert [row.value for row in client.consume(topic, 1, api_version=api_version)] == VALUES
