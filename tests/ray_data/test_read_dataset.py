"""Datasets of several topics and by time, and Ray Data's own reader and writer of Kafka topics."""

from __future__ import annotations

import json
from typing import Any

import pytest
import ray

import raylog

pytestmark = pytest.mark.ray

NOON_MS = 1_700_000_000_000


def write(servers: str, topic: str, values: range) -> None:
    """One record for each second."""
    with raylog.Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=value % 2, timestamp_ms=NOON_MS + 1000 * value)


def values_of(dataset: ray.data.Dataset) -> list[int]:
    return sorted(int(row["value"]) for row in dataset.take_all())


def test_several_topics_are_read_between_two_times(servers: str, topic: str) -> None:
    other = f"{topic}-b"
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics(raylog.NewTopic(other, num_partitions=2))
    write(servers, topic, range(10))
    write(servers, other, range(20, 24))
    read: Any = {"bootstrap_servers": servers, "columns": ["value"]}
    times: Any = {"starting_timestamp_ms": NOON_MS + 3500, "ending_timestamp_ms": NOON_MS + 22_000}
    assert values_of(raylog.read_dataset([topic, other], **read)) == [*range(10), *range(20, 24)]
    assert values_of(raylog.read_dataset([topic, other], **read, **times)) == [*range(4, 10), 20, 21]
    assert values_of(raylog.read_dataset(topic, **read, starting_timestamp_ms=NOON_MS + 10_000)) == []


def test_a_time_that_cannot_be_right_is_refused(servers: str) -> None:
    for time_ms in (-1, 1 << 63, 1.5, True):
        with pytest.raises(raylog.ConfigError, match="starting_timestamp_ms"):
            raylog.read_dataset("orders", bootstrap_servers=servers, starting_timestamp_ms=time_ms)  # type: ignore[arg-type]
    with pytest.raises(raylog.ConfigError, match="the end 1 is before the start 2"):
        raylog.read_dataset("orders", bootstrap_servers=servers, starting_timestamp_ms=2, ending_timestamp_ms=1)


def test_ray_datas_own_reader_and_writer(servers: str, topic: str) -> None:
    rows = [{"id": f"k{number}", "price": number / 4} for number in range(100)]
    ray.data.from_items(rows).write_kafka(topic, servers, key_field="id")
    found = ray.data.read_kafka(topic, bootstrap_servers=servers).take_all()
    ours = raylog.read_dataset(topic, bootstrap_servers=servers).take_all()
    for read in (found, ours):
        assert sorted((json.loads(row["value"]) for row in read), key=lambda row: row["price"]) == rows
    columns = ("key", "value", "topic", "partition", "offset")
    places = [sorted(tuple(row[name] for name in columns) for row in read) for read in (found, ours)]
    assert places[0] == places[1]
