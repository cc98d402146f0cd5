"""DescribeLogDirs returns the replicas in the log directory with their sizes, and the space on the disk."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.support.direct_broker import DirectBroker


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker({"log.segment.bytes": 200})
    broker.create_topic("a", partitions=2)
    broker.create_topic("b")
    broker.produce([b"x" * 100], topic="a", partition=1)
    return broker


def ask(broker: DirectBroker, *topics: tuple[str, tuple[int, ...]] | None, version: int = 5) -> Any:
    wanted = tuple(DescribableLogDirTopic(topic=each[0], partitions=each[1]) for each in topics if each is not None)
    return broker.call(DescribeLogDirsRequest(topics=None if topics == (None,) else wanted), version=version)


def result_of(broker: DirectBroker, *topics: tuple[str, tuple[int, ...]] | None, version: int = 5) -> Any:
    answer = ask(broker, *topics, version=version)
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.results
    return result


def replicas(result: DescribeLogDirsResult) -> list[tuple[str, int, int, int, bool]]:
    """(topic, partition, size, lag, whether it is a future one)."""
    return [
        (topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
        for topic in result.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_returns_the_directory_and_its_replicas(broker: DirectBroker, version: int) -> None:
    result = result_of(broker, None, version=version)
    size = len(broker.disk.read_file("/broker-0/a-1/00000000000000000000.log"))
    assert size > 100
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, "/broker-0")
    assert replicas(result) == [("a", 0, 0, 0, False), ("a", 1, size, 0, False), ("b", 0, 0, 0, False)]
    broker.disk.capacity_bytes = broker.disk.used_bytes() + 1000
    result = result_of(broker, None, version=version)
    sizes = (broker.disk.capacity_bytes, 1000) if version >= 4 else (-1, -1)
    assert (result.total_bytes, result.usable_bytes) == sizes
    assert not result.is_cordoned


def test_only_requested_replicas_on_this_broker_are_returned(broker: DirectBroker) -> None:
    found = result_of(broker, ("a", (1, 7)), ("b", (0,)), ("none", (0,)))
    assert [replica[:2] for replica in replicas(found)] == [("a", 1), ("b", 0)]
    assert replicas(result_of(broker)) == []
    assert replicas(result_of(broker, ("a", ()))) == []


def test_the_size_includes_all_segments(broker: DirectBroker) -> None:
    broker.create_topic("c")
    for _ in range(5):
        broker.produce([b"y" * 100], topic="c")
    names = [name for name in broker.disk.listdir("/broker-0/c-0") if name.endswith(".log")]
    assert len(names) > 2
    size = sum(len(broker.disk.read_file(f"/broker-0/c-0/{name}")) for name in names)
    assert replicas(result_of(broker, ("c", (0,)))) == [("c", 0, size, 0, False)]


def test_an_offline_log_has_no_lag(broker: DirectBroker) -> None:
    broker.broker.partition(TopicPartition("b", 0)).log.take_offline("for the test")
    assert [replica[3] for replica in replicas(result_of(broker, None))] == [0, 0, -1]


def test_a_disk_error_is_the_error_of_the_directory(broker: DirectBroker) -> None:
    broker.disk.fail_next("usage", errno.EIO)
    (result,) = ask(broker, None).results
    assert (result.error_code, result.log_dir, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, "/broker-0", ())
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert len(replicas(result_of(broker, None))) == 3
