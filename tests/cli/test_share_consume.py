"""`raylog share-consume` takes each record once, and gives back those that it releases."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster, cluster_thread


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {
        "num.partitions": 1,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.heartbeat.interval.ms": 100,
        "share.coordinator.state.topic.num.partitions": 1,
    }
    with cluster_thread(config, tmp_path_factory.mktemp("cli-share")) as running:
        yield running


def test_records_are_taken_once_and_printed(cli: Cli, topic: str) -> None:
    assert cli("topics", "create", topic).code == 0
    assert cli("produce", topic, stdin=b"1\n2\n3\n4\n5\n").code == 0
    assert cli("configs", "alter", "--group", "packers", "--add", "share.auto.offset.reset=earliest").code == 0
    take = ["share-consume", topic, "--group", "packers"]
    released = cli(*take, "--max-messages", "2", "--acknowledge", "release", "--json")
    assert released.code == 0, released.err
    assert [json.loads(line)["delivery_count"] for line in released.out.splitlines()] == [1, 1]
    again = cli(*take, "--max-messages", "3", "--json")
    shown = [json.loads(line) for line in again.out.splitlines()]
    assert [(each["value"], each["delivery_count"]) for each in shown] == [("1", 2), ("2", 2), ("3", 1)]
    assert cli(*take, "--max-messages", "2", "--print-offset").out == "Offset:3\t4\nOffset:4\t5\n"
    assert cli(*take, "--timeout-ms", "200") == (0, "", "")


def test_a_topic_that_does_not_exist(cli: Cli) -> None:
    result = cli("share-consume", "none", "--timeout-ms", "1")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
