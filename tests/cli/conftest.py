"""One broker for the tests of a file, and the command line as a function."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from raylog.broker.broker import Broker
from raylog.cli.main import main
from raylog.core.ids import TopicPartition
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import wait_until


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread({"num.partitions": 3}, tmp_path_factory.mktemp("cli"), brokers=2) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def cli(cluster: RunningCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `raylog ...` against the broker, with `stdin` as its input."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = main([*arguments, "--bootstrap-server", cluster.bootstrap_servers])
        except SystemExit as usage:
            code = int(usage.code or 0)
        return Result(code, *capfd.readouterr())

    return run


def wait_until_led(cluster: RunningCluster, *topics: str) -> None:
    """A broker shows a new partition without a leader while it creates the directory of which it is the leader."""

    def is_led(broker: Broker, topic: str) -> bool:
        return topic in broker.image.topics and all(
            TopicPartition(topic, partition.partition) in broker.partitions
            for partition in broker.image.topics[topic].partitions
            if partition.leader == broker.identity.node_id
        )

    wait_until(
        lambda: cluster.do(lambda: all(is_led(broker, topic) for broker in cluster.brokers for topic in topics)),
        lambda: f"{topics} have partitions without a leader",
        pause=0.01,
    )


_NUMBERS = itertools.count()
