"""(shell) Many small requests with acks=all to three replicas: a window of records outstanding, alone and with readers.

Apache Kafka with three brokers on such a machine: 656 records/s with 700 records outstanding over 11 partitions, 744
while six groups tail the topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from benchmarks.figures import Figure, figure, percentile, progress
from benchmarks.turns import longest_turn

NAME = "bench-small-records"
BROKERS = 3
PARTITIONS = 11
WINDOW = 700
GROUPS = 6
SECONDS = 6.0
VALUE = bytes(200)
TOPIC = "small"


def measure(runs: int) -> list[Figure]:
    with raylog.start(NAME, brokers=BROKERS, config={"min.insync.replicas": 2}) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result()
        _window(servers)
        alone = [_window(servers) for _ in range(runs)]
        turn = longest_turn(cluster)
        with _tailing(servers):
            tailed = [_window(servers) for _ in range(runs)]
        tailed_turn = longest_turn(cluster)
    return [
        figure(f"{WINDOW} small records outstanding, acks=all", "records/s", [rate for rate, _ in alone]),
        figure("  p99", "ms", [p99 for _, p99 in alone]),
        turn,
        figure(f"  while {GROUPS} groups tail the topic", "records/s", [rate for rate, _ in tailed]),
        figure("  p99", "ms", [p99 for _, p99 in tailed]),
        tailed_turn,
    ]


def _window(servers: str) -> tuple[float, float]:
    """(acknowledged records per second, 99th percentile of their latency in milliseconds)."""
    latencies: list[float] = []
    outstanding = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal outstanding
        assert error is None
        outstanding -= 1
        latencies.append((message.latency() or 0.0) * 1000)

    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0})
    begun, sent = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        while outstanding < WINDOW:
            producer.produce(TOPIC, VALUE, partition=sent % PARTITIONS, on_delivery=delivered)
            outstanding += 1
            sent += 1
        producer.poll(0.001)
    rate = len(latencies) / (time.perf_counter() - begun)
    producer.flush()
    p99 = percentile(sorted(latencies), 99)
    progress(f"{WINDOW} small records outstanding: {rate:,.0f} records/s, p99 {p99:.1f} ms")
    return rate, p99


@contextmanager
def _tailing(servers: str) -> Iterator[None]:
    """Groups of one consumer each that read what is written, in threads of this process."""
    ended, assigned = threading.Event(), threading.Semaphore(0)

    def tail(number: int) -> None:
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": f"tail-{number}", "auto.offset.reset": "latest", "log_level": 0}
        )
        consumer.subscribe([TOPIC], on_assign=lambda *_: assigned.release())
        while not ended.is_set():
            consumer.consume(500, 0.1)
        consumer.close()

    threads = [threading.Thread(target=tail, args=(number,)) for number in range(GROUPS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assigned.acquire()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
