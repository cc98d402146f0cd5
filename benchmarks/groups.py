"""(shell) How long many consumers take to share many partitions, from the first join until each holds its part; and
transactions. Raylog and Apache Kafka do the same in one run, without the initial delay of rebalances.

Fifty members are librdkafka's. A thousand are `group_members.py`, which use less of the machine than what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from benchmarks.figures import Figure, cpu_seconds, figure, progress
from benchmarks.group_members import share
from benchmarks.turns import longest_turn
from tests.support.kafka_peer import kafka_peer

MEMBERS, PARTITIONS = 50, 200
MANY: Final = 1000
"""Members, and as many partitions."""
KINDS: Final = ("classic", "consumer")
PRODUCERS: Final = (1, 20)
TRANSACTION_SECONDS: Final = 5.0
RECORDS: Final = 5
"""In one transaction."""
ROUND_SECONDS = 0.01
TIMEOUT_SECONDS = 180.0
CONFIG: Final = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


@dataclass(frozen=True, slots=True)
class Measured:
    """A cluster of one broker."""

    name: str
    servers: str
    pid: int

    def cpu(self) -> float:
        return cpu_seconds(self.pid)


def measure(runs: int) -> list[Figure]:
    with TemporaryDirectory(prefix="raylog-bench-") as folder:
        with raylog.start("bench-groups", config=CONFIG) as cluster:
            own = Measured("raylog", cluster.bootstrap_servers, cluster.status()[0].pid)
            figures = [*_measure(own, runs), longest_turn(cluster)]
        with _kafka(Path(folder)) as kafka:
            return [*figures, *_measure(kafka, runs)]


@contextmanager
def _kafka(folder: Path) -> Iterator[Measured]:
    with kafka_peer(folder / "kafka", {name: str(value) for name, value in CONFIG.items()}) as peer:
        peer.start()
        yield Measured("Kafka", peer.bootstrap_servers, peer.pid)


def _measure(broker: Measured, runs: int) -> list[Figure]:
    figures: list[Figure] = []
    _create_topic(broker.servers, "warm", 1)
    _share_by_librdkafka(broker.servers, "warm", "classic", members=1, partitions=1)  # creates __consumer_offsets
    for members, partitions in ((MEMBERS, PARTITIONS), (MANY, MANY)):
        for kind in KINDS:
            seconds, cpu = [], []
            for run in range(runs if members == MEMBERS else 1):
                topic = f"shared-{members}-{kind}-{run}"
                _create_topic(broker.servers, topic, partitions)
                before = broker.cpu()
                seconds.append(_share(broker.servers, topic, kind, members=members, partitions=partitions))
                cpu.append(broker.cpu() - before)
            path = f"{broker.name}: {members} members share {partitions} partitions, {kind} protocol"
            figures += [figure(path, "s", seconds), figure("  CPU of the broker", "s", cpu)]
            progress(f"{path}: {figures[-2].median:.2f} s, CPU {figures[-1].median:.2f} s")
    for producers in PRODUCERS:
        rates = [_transactions(broker.servers, producers) for _ in range(runs)]
        path = f"{broker.name}: transactions of {producers} producers"
        figures.append(figure(path, "1/s", rates, more_is_better=True))
        progress(f"{path}: {figures[-1].median:.0f} 1/s")
    return figures


def _create_topic(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def _share(servers: str, topic: str, kind: str, *, members: int, partitions: int) -> float:
    if members == MEMBERS:
        return _share_by_librdkafka(servers, topic, kind, members=members, partitions=partitions)
    address = servers.partition(",")[0]
    sharing = share(address, kind, topic, members=members, partitions=partitions, timeout_seconds=TIMEOUT_SECONDS)
    return asyncio.run(sharing)


def _share_by_librdkafka(servers: str, topic: str, kind: str, *, members: int, partitions: int) -> float:
    held: dict[int, set[int]] = {number: set() for number in range(members)}
    config = {"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False, "group.protocol": kind}

    def subscribe(number: int) -> Consumer:
        def assigned(_: Consumer, given: list[Any]) -> None:  # by the consumer protocol only what is new
            held[number] |= {each.partition for each in given}

        def revoked(_: Consumer, taken: list[Any]) -> None:
            held[number] -= {each.partition for each in taken}

        consumer = Consumer(config)
        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        return consumer

    begun = time.perf_counter()
    consumers = [subscribe(number) for number in range(members)]
    part = partitions // members
    while any(len(each) != part for each in held.values()) or len(set().union(*held.values())) < partitions:
        assert time.perf_counter() - begun < TIMEOUT_SECONDS, held
        for consumer in consumers:
            consumer.poll(0)
        time.sleep(ROUND_SECONDS)
    taken = time.perf_counter() - begun
    for consumer in consumers:
        consumer.close()
    return taken


def _transactions(servers: str, producers: int) -> float:
    """How many are committed in a second, by all producers together."""
    topic = f"paid-{time.monotonic_ns()}"
    _create_topic(servers, topic, 6)
    made = [
        Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-{number}", "linger.ms": 0})
        for number in range(producers)
    ]
    for producer in made:
        producer.init_transactions(TIMEOUT_SECONDS)
    until = time.monotonic() + TRANSACTION_SECONDS

    def pay(producer: Producer) -> int:
        count = 0
        while time.monotonic() < until:
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.produce(topic, b"paid")
            producer.commit_transaction()
            count += 1
        return count

    with ThreadPoolExecutor(producers) as threads:
        return sum(threads.map(pay, made)) / TRANSACTION_SECONDS
