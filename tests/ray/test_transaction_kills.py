"""Records are copied between topics exactly once, with brokers, controllers and clients killed by `kill -9`.

Two copiers of one stock group read what an idempotent producer keeps writing, and write it to another topic, each batch
in a transaction together with the offsets of the group. Brokers and controllers are killed, and so is a copier that
stands still. In the end the copies must be the originals: each once, in order.

`-s` shows each kill.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from select import select

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

import raylog
from raylog.actors.cluster import cluster_status
from tests.compat.topics import create_topic
from tests.ray.conftest import KILLED
from tests.ray.test_group_kills import CLIENT, Party, Writer
from tests.support.forms import by_form
from tests.support.group_ledger import Acknowledged, Entry
from tests.support.hang import HANG_SECONDS, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

KILLS = by_form(3, long=100)
ORIGINALS, COPIES, GROUP = "originals", "copies", "copiers"
PARTITIONS, CLIENTS = 4, ("stock", "own")
"""The copiers of both clients are members of one group: their transactions are of version 1 and 2."""
RECORDS_PER_SECOND = 100
COPIED_PER_KILL_MIN = 100
SILENT_SECONDS = 20.0
"""Longer than a group needs to do without a member that was killed."""


class Copier(Party):
    """A process, which is killed and replaced by another one of the same transactional id when it stands still.

    Where a broker goes while librdkafka sends offsets to it, the call may never return.
    """

    def __init__(self, name: str, bootstrap_servers: str, client: str) -> None:
        """`client` as in `transaction_copier`."""
        super().__init__(name, [])
        self._client = client
        self.committed = 0
        self.replaced = 0
        self._servers = bootstrap_servers

    def act(self) -> None:
        while self.goes_on:
            self._copy()
            self.replaced += 1

    def _copy(self) -> None:
        program = [sys.executable, "-m", "tests.ray.transaction_copier"]
        arguments = [self._client, self._servers, ORIGINALS, COPIES, GROUP, self.name]
        with subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as copier:
            assert copier.stdout is not None
            heard = time.monotonic()
            while self.goes_on and time.monotonic() - heard < SILENT_SECONDS:
                if select([copier.stdout], [], [], 0.1)[0]:
                    self.committed += int(copier.stdout.readline())
                    heard = time.monotonic()
            copier.kill()


def pids(rng: random.Random, number: int) -> set[int]:
    """Each time others: a broker, the active controller, or both."""
    status = cluster_status(KILLED)
    broker = rng.choice(status.brokers).pid
    controller = next(each.pid for each in status.controllers if each.active)
    return [{broker}, {controller}, {broker, controller}][number % 3]


def all_run(gone: set[int]) -> bool:
    status = cluster_status(KILLED)
    found = {broker.pid for broker in status.brokers} | {each.pid for each in status.controllers}
    states = {broker.state for broker in status.brokers}
    return states == {"running"} and any(each.active for each in status.controllers) and not found & {0, *gone}


def written(ledger: list[Entry]) -> dict[int, list[bytes]]:
    """What was acknowledged, by partition, in order."""
    acknowledged = sorted(
        (each.partition, each.offset, each.value) for each in ledger if isinstance(each, Acknowledged)
    )
    return {
        number: [value for partition, _, value in acknowledged if partition == number] for number in range(PARTITIONS)
    }


def copied(bootstrap_servers: str) -> dict[int, list[bytes]]:
    """The records of read_committed, by partition. A hanging transaction would block it forever."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **CLIENT,
        }
    )
    consumer.assign([TopicPartition(COPIES, number, 0) for number in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(HANG_SECONDS)
        assert message is not None, "it hangs"
        error, partition = message.error(), message.partition()
        if error is None:
            assert partition is not None
            found[partition].append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(partition)
    consumer.close()
    return found


def test_copied_exactly_once_with_any_process_killed(killed_cluster: raylog.Cluster) -> None:
    rng = random.Random(KILLS)
    servers = killed_cluster.bootstrap_servers
    for topic in (ORIGINALS, COPIES):
        create_topic(servers, topic, partitions=PARTITIONS, replication_factor=3)
    writer = Writer(servers, [], topic=ORIGINALS, partitions=PARTITIONS, per_second=RECORDS_PER_SECOND)
    copiers = [Copier(f"copier-{client}", servers, client) for client in CLIENTS]
    parties: list[Party] = [writer, *copiers]

    def committed() -> int:
        for party in parties:
            party.look()
        return sum(copier.committed for copier in copiers)

    def story() -> object:
        return {copier.name: (copier.committed, copier.replaced) for copier in copiers}

    for party in parties:
        party.start()

    def copy_more() -> None:
        least = committed() + COPIED_PER_KILL_MIN
        wait_until(lambda: committed() >= least, story)

    for number in range(KILLS):
        copy_more()
        victims = pids(rng, number)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        wait_until(partial(all_run, victims), lambda: cluster_status(KILLED))
        sys.stderr.write(f"{number + 1:4} killed; {story()}\n")
    copy_more()
    writer.end()
    originals = written(writer.ledger)
    wait_until(lambda: copied(servers) == originals, story)
    for copier in copiers:
        copier.end()
    assert copied(servers) == originals
    assert min(map(len, originals.values())) > KILLS * COPIED_PER_KILL_MIN // PARTITIONS
