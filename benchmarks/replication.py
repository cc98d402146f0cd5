"""(shell) Three brokers, three replicas, acks=all: speed, what the whole cluster pays for it, latency, and failover.

Apache Kafka with three brokers on such a machine: 37-49 MB/s from a Python client, ack p50 19-25 ms at 2,000 a second;
from the kill of a leader to the next acknowledged write 12-13 s with default settings.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from benchmarks.figures import Figure, cpu_seconds, figure, percentile, progress, timed
from benchmarks.librdkafka import NativeProducer
from benchmarks.turns import longest_turn
from benchmarks.wire import PRODUCER, VALUE
from raylog.actors.cluster import cluster_status

NAME = "bench-replication"
BROKERS = 3
PARTITIONS = 3
LATENCY_COUNT = 6000
LATENCY_PER_SECOND = 2000
LATENCY_TOPIC = "latency"
FAILOVER_TOPIC = "failover"
QUIET_SECONDS = 1.0
TIMEOUT_SECONDS = 120.0
EAGER = {"retry.backoff.ms": 5, "retry.backoff.max.ms": 20, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50}
"""A client that looks for the new leader without pauses: what is measured is the cluster."""


def measure(runs: int, megabytes: int) -> list[Figure]:
    config = {"min.insync.replicas": 2, "message.max.bytes": 2_000_000, "log.segment.delete.delay.ms": 0}
    with raylog.start(NAME, brokers=BROKERS, config=config) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        return [
            *_produce(cluster, admin, runs, megabytes),
            longest_turn(cluster),
            *_latency(cluster, admin),
            longest_turn(cluster),
            *_failover(cluster, admin, runs),
            longest_turn(cluster),
        ]


def _produce(cluster: raylog.Cluster, admin: AdminClient, runs: int, megabytes: int) -> list[Figure]:
    count = megabytes * 1_000_000 // len(VALUE)
    gigabytes = count * len(VALUE) / 1e9
    speed, cost = [], []
    for run in range(runs + 1):
        topic = f"replicated-{run}"
        _create(admin, topic, PARTITIONS)
        settings = {**PRODUCER, "acks": "all", "bootstrap.servers": cluster.bootstrap_servers}
        with NativeProducer(topic, VALUE, settings) as producer:
            producer.send(PARTITIONS)
            before = _cluster_cpu(cluster)
            seconds = timed(partial(producer.send, count))
            paid = (_cluster_cpu(cluster) - before) / gigabytes
        admin.delete_topics([topic])[topic].result()
        progress(f"replicated run {run}: {megabytes / seconds:.0f} MB/s, {paid:.2f} CPU-s/GB of the cluster")
        if run:
            speed.append(megabytes / seconds)
            cost.append(paid)
    return [
        figure("produce 1 KiB to 3 replicas, acks=all", "MB/s", speed),
        figure("  CPU of brokers and controller", "CPU-s/GB", cost),
    ]


def _latency(cluster: raylog.Cluster, admin: AdminClient) -> list[Figure]:
    _create(admin, LATENCY_TOPIC, 1)
    latencies: list[float] = []

    def delivered(_: object, message: Message) -> None:
        latencies.append((message.latency() or 0.0) * 1000)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "acks": "all"})
    producer.produce(LATENCY_TOPIC, b"warm")
    producer.flush()
    due = time.perf_counter()
    for _ in range(LATENCY_COUNT):
        producer.produce(LATENCY_TOPIC, VALUE, on_delivery=delivered)
        due += 1 / LATENCY_PER_SECOND
        producer.poll(max(due - time.perf_counter(), 0))
    producer.flush()
    ordered = sorted(latencies)
    p50, p99 = percentile(ordered, 50), percentile(ordered, 99)
    progress(f"ack latency with 3 replicas at {LATENCY_PER_SECOND}/s: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    return [
        figure(f"ack latency, 3 replicas, {LATENCY_PER_SECOND:,}/s: p50", "ms", [p50]),
        figure("  p99", "ms", [p99]),
    ]


def _failover(cluster: raylog.Cluster, admin: AdminClient, runs: int) -> list[Figure]:
    """One small record after the other; the gap in their acknowledgements after the leader was killed."""
    _create(admin, FAILOVER_TOPIC, 1)
    acknowledged: list[float] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        assert error is None
        acknowledged.append(time.perf_counter())

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "enable.idempotence": True, **EAGER}
    producer = Producer({**settings, "log_level": 0})
    gaps = []
    for _ in range(runs):
        leader = _leader_when_all_in_sync(admin)
        _write(producer, acknowledged, delivered, QUIET_SECONDS)
        pid, killed = cluster.status()[leader].pid, time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        _write(producer, acknowledged, delivered, QUIET_SECONDS)
        after = [at for at in acknowledged if at > killed]
        gaps.append(max(later - earlier for earlier, later in zip([killed, *after], after, strict=False)))
        progress(f"failover: {gaps[-1]:.3f} s")
    producer.flush()
    return [figure("leader killed to next acknowledged write", "s", gaps, solid=1.0, aim=0.2)]


def _write(
    producer: Producer,
    acknowledged: list[float],
    delivered: Callable[[KafkaError | None, Message], None],
    seconds: float,
) -> None:
    """One record at a time for so long, and until one is acknowledged."""
    begun, before = time.perf_counter(), len(acknowledged)
    while time.perf_counter() - begun < seconds or len(acknowledged) == before or len(producer):
        if not len(producer) and time.perf_counter() - begun < TIMEOUT_SECONDS:
            producer.produce(FAILOVER_TOPIC, b"x", on_delivery=delivered)
        producer.poll(0.001)


def _leader_when_all_in_sync(admin: AdminClient) -> int:
    begun = time.perf_counter()
    while True:
        partition = admin.list_topics(FAILOVER_TOPIC, timeout=TIMEOUT_SECONDS).topics[FAILOVER_TOPIC].partitions[0]
        if len(partition.isrs) == BROKERS:
            return partition.leader
        assert time.perf_counter() - begun < TIMEOUT_SECONDS, "the replicas were never all in sync"
        time.sleep(0.1)


def _create(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, BROKERS)])[topic].result()


def _cluster_cpu(cluster: raylog.Cluster) -> float:
    status = cluster_status(NAME)
    pids = [broker.pid for broker in status.brokers] + [controller.pid for controller in status.controllers]
    return sum(map(cpu_seconds, pids))
