"""A broker killed under idempotent load loses and duplicates no acknowledged record, and its producer continues."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Message, Producer

import raylog
from tests.compat.topics import create_topic
from tests.ray.clients import answers, cluster_id_of, read, topics_of, write
from tests.ray.silent_proxy import SilentProxy
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus  # it imports Ray, which must wait for its environment

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

TOPIC = "ledger"
PARTITIONS = 3
KILLS = by_form(2, long=20)
BETWEEN_KILLS = 3000
"""Records that must be acknowledged before the broker is killed (again), and after it has come back."""
OUTSTANDING_MAX = 5000
PADDING = b"." * 100


class Load:
    """An idempotent producer, what it was given, and the ledger of what was acknowledged. Any error fails the test."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.given: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.ledger: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
        """By partition: offset and value in the order of acknowledgement."""
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": "all", "enable.idempotence": True, "error_cb": self._heard}
        )

    @property
    def acknowledged(self) -> int:
        return sum(len(entries) for entries in self.ledger)

    def run(self, until: Callable[[], bool], *, seconds: float = HANG_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"nothing came of it; {self.acknowledged} acknowledged, {self.errors}"
            if len(self._producer) >= OUTSTANDING_MAX:
                self._producer.poll(0.01)
                continue
            for partition, given in enumerate(self.given):
                value = b"%d %d %b" % (partition, len(given), PADDING)
                given.append(value)
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)

    def until_acknowledged(self, more: int) -> None:
        goal = self.acknowledged + more
        self.run(lambda: self.acknowledged >= goal)

    def finish(self) -> None:
        """The producer ends by itself, without a fatal error; lost connections it may tell of."""
        assert self._producer.flush(HANG_SECONDS) == 0
        assert not [error for error in self.errors if error.fatal()]
        del self._producer  # it and its callbacks hold one another: its threads would go on looking for the broker

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.ledger[partition].append((offset, value))

    def _heard(self, error: KafkaError) -> None:
        self.errors.append(error)


def kill(cluster: raylog.Cluster) -> BrokerStatus:
    """Kill -9, and wait for the successor; what it says of itself."""
    killed = cluster.status()[0]
    assert killed.state == "running"
    os.kill(killed.pid, signal.SIGKILL)
    return wait_for(cluster, "running", since=killed)


def wait_for(cluster: raylog.Cluster, state: str, *, since: BrokerStatus) -> BrokerStatus:
    """The status of a later process than that of `since`, once it is in that state."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        status = cluster.status()[0]
        if status.state == state and status.pid != since.pid:
            return status
        assert time.monotonic() < deadline, f"not {state}, but {status}"
        time.sleep(0.05)


def assert_everything_is_there_once(bootstrap_servers: str, load: Load) -> None:
    for partition in range(PARTITIONS):
        ledger = load.ledger[partition]
        assert [value for _, value in ledger] == load.given[partition]
        assert [offset for offset, _ in ledger] == list(range(len(ledger)))
        assert read(bootstrap_servers, TOPIC, partition) == ledger


def test_killed_again_under_load() -> None:
    with raylog.start("killed") as cluster:
        bootstrap_servers = cluster.bootstrap_servers
        create_topic(bootstrap_servers, TOPIC, partitions=PARTITIONS)
        load = Load(bootstrap_servers)
        first = cluster.status()[0]
        pids = {first.pid}
        for _ in range(KILLS):
            load.until_acknowledged(BETWEEN_KILLS)
            status = kill(cluster)
            pids.add(status.pid)
            assert (status.host, status.port, status.cluster_id) == (first.host, first.port, first.cluster_id)
        load.until_acknowledged(BETWEEN_KILLS)
        load.finish()
        assert len(pids) == KILLS + 1
        assert load.acknowledged >= (KILLS + 1) * BETWEEN_KILLS
        assert_everything_is_there_once(bootstrap_servers, load)


@contextmanager
def cluster_behind(proxy: SilentProxy, broker_port: int) -> Iterator[raylog.Cluster]:
    """Metadata directs clients to the proxy."""
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
    }
    with raylog.start("answers-lost", config=listeners) as cluster:
        yield cluster


def test_batches_whose_responses_were_lost_are_not_appended_again() -> None:
    """The broker has written batches whose acknowledgement never arrived; the producer sends them to its successor."""
    broker_port = free_port()
    with SilentProxy(broker_port) as proxy, cluster_behind(proxy, broker_port) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        load = Load(cluster.bootstrap_servers)
        for _ in range(2):
            load.until_acknowledged(BETWEEN_KILLS)
            proxy.silence()
            load.run(lambda: proxy.swallowed_bytes > 0)
            kill(cluster)
            proxy.hang_up()
        load.until_acknowledged(BETWEEN_KILLS)
        load.finish()
        assert proxy.silences_with_loss == 2
        assert_everything_is_there_once(cluster.bootstrap_servers, load)


def test_a_broker_without_its_data_does_not_start_empty(tmp_path: Path) -> None:
    """It stays away as long as the directory is empty, and is back with everything once the directory is."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with raylog.start("emptied", data_dir=str(data)) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=1)
        write(cluster.bootstrap_servers, TOPIC, [b"precious"])
        cluster_id = cluster_id_of(cluster.bootstrap_servers)
        data.rename(elsewhere)
        data.mkdir()
        killed = cluster.status()[0]
        os.kill(killed.pid, signal.SIGKILL)
        lost = wait_for(cluster, "starting", since=killed)
        time.sleep(1)  # it tries again five times a second
        assert cluster.status()[0] == lost
        assert not answers(cluster.bootstrap_servers)
        assert list(data.iterdir()) == []
        data.rmdir()
        elsewhere.rename(data)
        wait_for(cluster, "running", since=killed)
        assert cluster_id_of(cluster.bootstrap_servers) == cluster_id
        assert topics_of(cluster.bootstrap_servers) >= {TOPIC}
        assert read(cluster.bootstrap_servers, TOPIC) == [(0, b"precious")]
