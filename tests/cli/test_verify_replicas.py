"""`raylog verify-replicas` finds replicas that differ, and says in one line what is wrong with them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.client.admin.topics import NewTopic
from raylog.client.replica_check import _Comparison
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import BatchHeader
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster
from tests.support.hang import HANG_SECONDS


@pytest.fixture
def replicated(cli: Cli, cluster: RunningCluster, topic: str) -> str:
    """A topic with a partition on both brokers, led by the first, with three batches."""
    servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    with raylog.AdminClient(**servers) as admin:
        admin.create_topics(NewTopic(topic, replica_assignments={0: [0, 1]}))
    with raylog.Producer(**servers, acks="all", linger_ms=0) as producer:
        for number in range(3):
            producer.send(topic, f"value {number}").result()
    deadline = time.monotonic() + HANG_SECONDS
    while json.loads(cli("verify-replicas", topic, "--json").out)[0]["behind"]:  # it learns the high watermark later
        assert time.monotonic() < deadline
    return topic


def files_of(cluster: RunningCluster, topic: str) -> dict[int, Path]:
    """The segment of each replica."""
    found = {int(path.parent.parent.name.rpartition("-")[2]): path for path in cluster.path.rglob(f"{topic}-0/*.log")}
    assert sorted(found) == [0, 1]
    return found


def test_equal_replicas(cli: Cli, replicated: str) -> None:
    result = cli("verify-replicas", replicated)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[1].split()[:3] == [f"{replicated}-0", "0", "3"]
    assert result.out.splitlines()[1].endswith("all     equal")
    (found,) = json.loads(cli("verify-replicas", f"{replicated}:0", "--json").out)
    assert (found["end_offset"], found["batches"], found["behind"], found["problems"]) == (3, 3, {}, {})


@pytest.mark.parametrize("broker", [0, 1])
def test_a_damaged_replica(cli: Cli, cluster: RunningCluster, replicated: str, broker: int) -> None:
    path = files_of(cluster, replicated)[broker]
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(data.index(b"value 1"))
        file.write(b"VALUE")
    result = cli("verify-replicas", replicated, "--json")
    assert result.code == 1
    assert json.loads(result.out)[0]["problems"] == {str(broker): "offset 1: the checksum of the batch is wrong"}
    assert "the checksum of the batch is wrong" in cli("verify-replicas", replicated).out


def test_a_replica_with_another_batch(cli: Cli, cluster: RunningCluster, replicated: str) -> None:
    """A batch with a right checksum, at the same offset: that of another one, as after a divergence."""
    path = files_of(cluster, replicated)[1]
    data = path.read_bytes()
    third = len(data) // 3
    assert len(data) == 3 * third
    with path.open("r+b") as file:  # the second batch is replaced by the first, but for its offset
        file.seek(third + 8)
        file.write(data[8:third])
    result = cli("verify-replicas", replicated, "--json")
    assert result.code == 1
    assert json.loads(result.out)[0]["problems"] == {"1": "offset 1: the batch differs from the leader's"}


def test_a_follower_that_is_behind_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [BatchHeader(offset, 49, 0, 2, 7, 0, 0, 0, 0, -1, -1, -1, 1) for offset in range(3)]
    given = {4: batches, 1: batches[:1], 2: batches, 3: []}
    monkeypatch.setattr(_Comparison, "_batches", lambda _, broker: iter(given[broker]))
    nothing: Any = None
    found = _Comparison(nothing, TopicPartition("t", 0), nothing, list(given), 0, 3).run()
    assert (found.batches, found.behind, found.problems) == (3, {1: 2, 3: 3}, {})


def test_a_topic_that_does_not_exist(cli: Cli) -> None:
    result = cli("verify-replicas", "none")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
