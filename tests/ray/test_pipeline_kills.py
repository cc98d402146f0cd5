"""The flight pipeline has the table of pandas though its driver, its executor and brokers are killed by `kill -9`.

Among the brokers are those that lead the partition of `__transaction_state` with the sink's transactions. The flights
are written while the job runs, some for each kill. `-s` shows each kill.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

import raylog
from examples.flight_pipeline import (
    ALERTS,
    DELAYS,
    PARTITIONS,
    Day,
    DayDelays,
    alerts_of,
    check,
    create_topics,
    delays_of,
    write_flights,
)
from examples.flight_records import load_flights
from raylog.actors.cluster import cluster_status
from raylog.core.coordinator_partition import coordinator_partition
from raylog.raydp_bridge.plan_store import PlanStore
from raylog.raydp_bridge.session import PYTHON_DAEMON
from raylog.txncoord.shards import TRANSACTION_TOPIC
from tests.conftest import files_unpacked_by_java_are_removed
from tests.ray.conftest import KILLED
from tests.ray.pipeline_driver import EXECUTOR_VARIABLE
from tests.ray.test_transaction_kills import all_run
from tests.support.forms import by_form
from tests.support.hang import wait_until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.spark,
    pytest.mark.usefixtures("ray_runtime"),
    pytest.mark.skipif(not by_form(0, long=1), reason="takes minutes: --long"),
]

KILLS = 20
"""Of each victim."""
FLIGHTS_PER_KILL = 1_000


class Victim(Enum):
    EXECUTOR = "executor"
    BROKER = "broker"
    COORDINATOR = "broker of the transaction coordinator"
    DRIVER = "driver"


class Pipeline:
    """The process of the driver, and those that work for it."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._logs = itertools.count()
        self._log = folder
        self._driver = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        import ray

        self._log = self._folder / f"driver-{next(self._logs)}.log"
        command = [sys.executable, "-m", "tests.ray.pipeline_driver", self._servers, str(self._folder)]
        environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [*command, str(FLIGHTS_PER_KILL)], stdout=log, stderr=log, env=environment, start_new_session=True
            )

    @property
    def batch(self) -> int:
        """The last one that was planned, or -1."""
        assert self._driver.poll() is None, f"the driver has ended: {self._log.read_text()[-3000:]}"
        return max(PlanStore(self._folder / "plans").batches(), default=-1)

    def wait_for_batch(self, number: int) -> None:
        wait_until(lambda: self.batch >= number, lambda: f"no batch {number}: {self._log.read_text()[-3000:]}")

    def kill_driver(self) -> None:
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        self._driver = self._start()

    def kill_executor(self) -> None:
        wait_until(lambda: self._executor() is not None, lambda: "no executor")
        if (pid := self._executor()) is not None:
            os.kill(pid, signal.SIGKILL)

    def _executor(self) -> int | None:
        """The parent of the daemon of its Python workers."""
        mark = f"{EXECUTOR_VARIABLE}={self._folder}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes().split(b"\0")
                if PYTHON_DAEMON.encode() in command and mark in (process / "environ").read_bytes().split(b"\0"):
                    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                    if Path(f"/proc/{parent}/comm").read_text() == "java\n":  # and not the daemon, of its workers
                        return parent
        return None

    @property
    def transactional_id(self) -> str:
        query = json.loads((self._folder / "checkpoint" / "metadata").read_text())["id"]
        return f"{query}-delays-0"

    def stop(self) -> None:
        (self._folder / "stop").touch()
        assert self._driver.wait() == 0, self._log.read_text()[-3000:]

    def end(self) -> None:
        if self._driver.poll() is None:
            os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()


@pytest.fixture
def pipeline(killed_cluster: raylog.Cluster, tmp_path: Path) -> Iterator[Pipeline]:
    servers = killed_cluster.bootstrap_servers
    create_topics(servers, replication_factor=3)
    with files_unpacked_by_java_are_removed():
        pipeline = Pipeline(servers, tmp_path)
        yield pipeline
        pipeline.end()


def kill_a_broker(servers: str, transactional_id: str | None, choose: random.Random) -> None:
    """Any, or the one that is the coordinator of this transactional id. Returns when all brokers run again."""
    brokers = {broker.id: broker.pid for broker in cluster_status(KILLED).brokers}
    broker = choose.choice(sorted(brokers))
    if transactional_id is not None:
        with raylog.AdminClient(bootstrap_servers=servers) as admin:
            # The first transaction of the sink creates the topic, some time after its batch was planned.
            wait_until(
                lambda: TRANSACTION_TOPIC in {each.name for each in admin.list_topics()}, lambda: "no transaction"
            )
            partitions = admin.describe_topics(TRANSACTION_TOPIC)[TRANSACTION_TOPIC].partitions
        leader = partitions[coordinator_partition(transactional_id, len(partitions))].leader
        assert leader is not None
        broker = leader
    os.kill(brokers[broker], signal.SIGKILL)
    wait_until(lambda: all_run({brokers[broker]}), lambda: cluster_status(KILLED))


def latest(servers: str, topic: str, partitions: int) -> dict[Day, DayDelays]:
    """The last value of each key, as a stock consumer reads them with isolation.level=read_committed."""
    config = {"bootstrap.servers": servers, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = Consumer({**config, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = {}, 0
    while ended < partitions:
        message = consumer.poll(1)
        if message is not None and (error := message.error()) is None:
            found[Day(**json.loads(message.key() or b""))] = DayDelays(**json.loads(message.value() or b""))
        elif message is not None:
            assert error is not None
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
    consumer.close()
    return found


def test_the_table_is_that_of_pandas_whoever_is_killed(
    killed_cluster: raylog.Cluster, pipeline: Pipeline, tmp_path: Path, say: Callable[[str], None]
) -> None:
    servers = killed_cluster.bootstrap_servers
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    victims = list(Victim) * KILLS
    choose.shuffle(victims)
    flights = load_flights((len(victims) + 1) * FLIGHTS_PER_KILL).sort_values("time_hour", kind="stable")
    for number, victim in enumerate(victims):
        write_flights(servers, flights[number * FLIGHTS_PER_KILL :][:FLIGHTS_PER_KILL])
        pipeline.wait_for_batch(pipeline.batch + 1)
        time.sleep(choose.random())  # at any moment of a batch
        match victim:
            case Victim.DRIVER:
                pipeline.kill_driver()
            case Victim.EXECUTOR:
                pipeline.kill_executor()
            case Victim.BROKER:
                kill_a_broker(servers, None, choose)
            case Victim.COORDINATOR:
                kill_a_broker(servers, pipeline.transactional_id, choose)
        say(f"kill {number} of seed {seed}: {victim.value}, in batch {pipeline.batch}")
    write_flights(servers, flights[len(victims) * FLIGHTS_PER_KILL :])

    def counted() -> int:
        assert pipeline.batch >= 0
        return sum(each.flights for each in latest(servers, DELAYS, PARTITIONS).values())

    wait_until(lambda: counted() == len(flights), lambda: f"{counted()} flights of {len(flights)} are counted")
    pipeline.stop()
    found = latest(servers, DELAYS, PARTITIONS)
    check(found, delays_of(flights))
    assert latest(servers, ALERTS, 1).keys() == alerts_of(found)
    batches = [line.split() for line in (tmp_path / "batches").read_text().splitlines()]
    assert batches
    assert not [batch for batch, dropped in batches if dropped != "0"], "rows came after the watermark"
