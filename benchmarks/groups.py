"""(shell) How long many consumers take to share many partitions, from the first join until each holds its part.

Apache Kafka needs 5.3 s for the same, also without its initial delay of 3 s.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from benchmarks.figures import Figure, cpu_seconds, figure, progress
from benchmarks.turns import longest_turn

MEMBERS = 50
PARTITIONS = 200
KAFKA_SECONDS = 5.3
ROUND_SECONDS = 0.01
TIMEOUT_SECONDS = 120.0


def measure(runs: int) -> list[Figure]:
    config = {"group.initial.rebalance.delay.ms": 0}
    seconds, cpu = [], []
    with raylog.start("bench-groups", config=config) as cluster:
        pid, servers = cluster.status()[0].pid, cluster.bootstrap_servers
        for run in range(-1, runs):  # the first one is not counted: it creates __consumer_offsets
            topic = f"shared-{run}"
            _create_topic(servers, topic)
            cpu_before = cpu_seconds(pid)
            taken = _share(servers, topic)
            if run >= 0:
                seconds.append(taken)
                cpu.append(cpu_seconds(pid) - cpu_before)
        turn = longest_turn(cluster)
    figures = [
        figure(
            f"{MEMBERS} members share {PARTITIONS} partitions", "s", seconds, solid=KAFKA_SECONDS, aim=KAFKA_SECONDS
        ),
        figure("the same: CPU of the broker", "s", cpu),
        turn,
    ]
    progress(f"groups: {figures[0].median:.2f} s")
    return figures


def _create_topic(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()


def _share(servers: str, topic: str) -> float:
    held: dict[int, set[int]] = {number: set() for number in range(MEMBERS)}

    def subscribe(number: int) -> Consumer:
        def assigned(_: Consumer, partitions: list[Any]) -> None:
            held[number] = {each.partition for each in partitions}

        def revoked(_: Consumer, partitions: list[Any]) -> None:
            held[number] = set()

        consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False})
        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        return consumer

    begun = time.perf_counter()
    consumers = [subscribe(number) for number in range(MEMBERS)]
    share = PARTITIONS // MEMBERS
    while any(len(part) != share for part in held.values()):
        assert time.perf_counter() - begun < TIMEOUT_SECONDS, held
        for consumer in consumers:
            consumer.poll(0)
        time.sleep(ROUND_SECONDS)
    taken = time.perf_counter() - begun
    assert set().union(*held.values()) == set(range(PARTITIONS))
    for consumer in consumers:
        consumer.close()
    return taken
