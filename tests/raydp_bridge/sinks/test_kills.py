"""Tasks and brokers are killed at any moment while batches are written: a stock consumer reads each row once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.topics import NewTopic
from raylog.core.errors import KafkaError
from raylog.raydp_bridge.sinks.exactly_once import SinkId
from raylog.raydp_bridge.sinks.progress_topic import fix_tasks
from raylog.raydp_bridge.sinks.target import SinkTarget
from raylog.raydp_bridge.sinks.task_writer import write_exactly_once
from tests.support.cluster_process import ClusterProcess
from tests.support.forms import by_form

TASKS = 2
BATCHES = by_form(2, long=100)
SEED = 2013
ATTEMPT_SECONDS = 0.5
"""About how long an attempt takes: the time in which it is killed."""
SINK = SinkId("kills")
TOPIC, SENTINEL = "rows", "end"


def rows_of(batch_id: int, task: int) -> list[str]:
    return [f"{batch_id}/{task}/{number}" for number in range(40 * task + 1)]


def attempt(target: SinkTarget, batch_id: int, task: int, seed: int) -> None:
    """A process. The order of the rows is that of no other attempt."""
    rows = rows_of(batch_id, task)
    Random(seed).shuffle(rows)
    try:
        batches = [pa.record_batch({"value": rows[:10]}), pa.record_batch({"value": rows[10:]})]
        write_exactly_once(iter(batches), target, SINK, task=task, tasks=TASKS, batch_id=batch_id, spool_bytes=100)
    except KafkaError:
        sys.exit(1)


def read_all(bootstrap_servers: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g", "check.crcs": True})
    consumer.assign([Position(TOPIC, 0, 0)])
    found: list[str] = []
    while SENTINEL not in found[-1:]:
        found += [(message.value() or b"").decode() for message in consumer.consume(1000, 0.2)]
    consumer.close()
    return found[:-1]


def kill_and_retry(start: Callable[[], BaseProcess], random: Random, zombies: list[BaseProcess]) -> int:
    """Start attempts until one has succeeded; the number of those that were killed, or replaced while they ran."""
    lost = 0
    while True:
        process = start()
        fate = random.choice(["killed", "replaced", "ends"])
        if fate != "ends":
            process.join(random.uniform(0, ATTEMPT_SECONDS))
            lost += process.exitcode is None
        if fate == "killed":
            process.kill()
        if fate == "replaced":
            zombies.append(process)
            continue
        process.join()
        if process.exitcode == 0:
            return lost


@pytest.mark.slow
def test_each_row_is_there_once_after_kills_of_tasks_and_brokers(tmp_path: Path, say: Callable[[str], None]) -> None:
    random = Random(SEED)
    processes = get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    broker = ClusterProcess({"auto.create.topics.enable": "false"}, tmp_path / "log")
    config = {"auto.create.topics.enable": "false", "listeners": f"PLAINTEXT://127.0.0.1:{broker.port}"}
    servers = broker.bootstrap_servers
    target = SinkTarget.of(TOPIC, bootstrap_servers=servers, client_config=None, producer_config={"linger.ms": 0})
    zombies: list[BaseProcess] = []
    lost = 0
    try:
        with AdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics(NewTopic(TOPIC, 1, 1))
        for batch_id in range(BATCHES):
            assert fix_tasks(target.brokers, SINK, batch_id, tasks=TASKS, default_tasks=1) == TASKS
            for task in range(TASKS):

                def start(batch_id: int = batch_id, task: int = task) -> BaseProcess:
                    process = processes.Process(target=attempt, args=(target, batch_id, task, random.getrandbits(32)))
                    process.start()
                    return process

                if (batch_id + task) % 4 == 1:
                    zombies.append(start())
                    zombies[-1].join(random.uniform(0, ATTEMPT_SECONDS))
                    broker.kill()
                    broker = ClusterProcess(config, tmp_path / "log")
                lost += kill_and_retry(start, random, zombies)
        for zombie in zombies:
            zombie.join()
        with target.producer() as producer:
            producer.send(TOPIC, SENTINEL).result()
        found = read_all(servers)
        expected = [row for batch_id in range(BATCHES) for task in range(TASKS) for row in rows_of(batch_id, task)]
        assert sorted(found) == sorted(expected)
    finally:
        for zombie in zombies:
            zombie.kill()
        broker.kill()
    say(f"{BATCHES} batches, {lost} attempts killed or replaced while they ran")
