"""Under load, with kills of workers, brokers and controllers on both sides, each record is copied exactly once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.client.served import Target
from tests.mirror.flow_process import FlowProcess
from tests.mirror.flows import create, ends, seen
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS
from tests.support.node_cluster import NodeCluster

KILLS = by_form(0, long=100)
PARTITIONS = 4
WORKERS = 2
BETWEEN_SECONDS = 2.0
TOPIC = "orders"

pytestmark = pytest.mark.skipif(KILLS == 0, reason="takes minutes: --long")


class Load:
    """Writes numbered records until `stop`, and knows which are acknowledged."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: list[set[bytes]] = [set() for _ in range(PARTITIONS)]
        self.failed: list[KafkaError] = []
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(HANG_SECONDS) == 0
        assert self.failed == []

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.02):
            for _ in range(10):
                self._producer.produce(
                    TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert isinstance(value, bytes)
        self.acknowledged[partition].add(value)
        if error is not None:
            self.failed.append(error)


class Workers:
    def __init__(self, entries: dict[str, str], log: Path) -> None:
        self._entries = entries
        self._log = log
        self._running = {number: self._start(number) for number in range(WORKERS)}

    def _start(self, number: int) -> FlowProcess:
        return FlowProcess(self._entries, self._log, share=(number, WORKERS), commit_interval_ms=100)

    def replace(self, number: int) -> None:
        self._running[number].kill()
        self._running[number] = self._start(number)

    def close(self) -> None:
        for worker in self._running.values():
            worker.kill()


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[NodeCluster, NodeCluster]]:
    with ExitStack() as stops:
        clusters = []
        for name in ("source", "target"):
            clusters.append(NodeCluster(tmp_path / name))
            stops.callback(clusters[-1].kill)
        yield clusters[0], clusters[1]


def test_each_record_is_copied_once(sides: tuple[NodeCluster, NodeCluster], tmp_path: Path) -> None:
    source, target = (Target(cluster.bootstrap_servers) for cluster in sides)
    create(source, TOPIC, PARTITIONS)
    rng = random.Random(1)
    entries = {
        "clusters": "A,B",
        "A.bootstrap.servers": source.plain,
        "B.bootstrap.servers": target.plain,
        "A->B.enabled": "true",
        "topics": TOPIC,
        "emit.heartbeats.enabled": "false",
        "exactly.once.source.support": "enabled",
        "refresh.topics.interval.seconds": "1",
        "replication.factor": "3",
    }
    killed: dict[str, int] = {}
    load = Load(source.plain)
    workers = Workers(entries, tmp_path / "workers.log")
    try:
        for _ in range(KILLS):
            time.sleep(BETWEEN_SECONDS)  # load between kills, as much as a rate says
            kind = rng.choice(("worker", "worker", "source", "target", "target"))
            if kind == "worker":
                workers.replace(rng.randrange(WORKERS))
            else:
                cluster = sides[kind == "target"]
                node = rng.choice(cluster.nodes)
                node.kill()
                cluster.restart_ended()
                kind = f"{kind} {node.spec.name.rstrip('-012')}"
            killed[kind] = killed.get(kind, 0) + 1
        load.stop()
        wanted = ends(source, TOPIC, PARTITIONS)
        deadline = time.monotonic() + HANG_SECONDS
        while any(len(seen(target, f"A.{TOPIC}", number)) < wanted[number] for number in wanted):
            assert time.monotonic() < deadline, (tmp_path / "workers.log").read_text()[-3000:]
    finally:
        load._stopping.set()
        workers.close()
    assert len(killed) == 5, killed
    for partition in range(PARTITIONS):
        copied, written = seen(target, f"A.{TOPIC}", partition), seen(source, TOPIC, partition)
        assert copied == written
        values = [record[1] for record in copied]
        assert len(values) == len(set(values))
        assert set(values) == load.acknowledged[partition]
