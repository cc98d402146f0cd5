"""(shell) The paths over TCP: produce and fetch in CPU seconds per GB beside their yardsticks, and ack latency."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.figures import Figure, cpu_seconds, figure, percentile, progress, timed
from benchmarks.librdkafka import NativeProducer

VALUE = os.urandom(1024)
PRODUCER = {
    "acks": "1",
    "linger.ms": "5",
    "batch.size": "1000000",
    "batch.num.messages": "10000",
    "message.max.bytes": "2000000",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "200000",
    "log_level": "3",
}


def produce_and_fetch(bootstrap_servers: str, pid: int, data_dir: Path, runs: int, megabytes: int) -> list[Figure]:
    """Ours, the yardsticks, and the records read back, in turn, so that a machine that slows down slows all of them.

    Each run's topic is deleted after it: a machine that must first find fresh memory for the page cache can make a bare
    write six times as expensive, and every run would meet another machine. What a bare write costs stands beside.
    """
    count = megabytes * 1_000_000 // len(VALUE)
    gigabytes = count * len(VALUE) / 1e9
    samples: dict[str, list[float]] = defaultdict(list)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for run in range(runs + 1):
        topic = f"bench-{run}"
        with NativeProducer(topic, VALUE, {**PRODUCER, "bootstrap.servers": bootstrap_servers}) as producer:
            producer.send(1)
            before = cpu_seconds(pid)
            ours = timed(lambda: producer.send(count))
            produce_cost = (cpu_seconds(pid) - before) / gigabytes
        with NativeProducer(topic, VALUE, {**PRODUCER, "test.mock.num.brokers": "1"}) as producer:
            producer.send(1)
            mock = timed(lambda: producer.send(count))
        before = cpu_seconds(pid)
        fetched = timed(partial(consume, {"bootstrap.servers": bootstrap_servers}, topic, count))
        fetch_cost = (cpu_seconds(pid) - before) / gigabytes
        bare = _bare_write_cost(data_dir, megabytes)
        admin.delete_topics([topic])[topic].result()
        progress(
            f"run {run}: produce {gigabytes / ours:.2f} GB/s, {produce_cost:.2f} CPU-s/GB (a bare write {bare:.2f});"
            f" mock {gigabytes / mock:.2f} GB/s; fetch {gigabytes / fetched:.2f} GB/s, {fetch_cost:.2f} CPU-s/GB"
        )
        if run:  # the first is for warming up
            samples["ratio"].append(mock / ours)
            samples["produce"].append(produce_cost)
            samples["bare"].append(bare)
            samples["above"].append(produce_cost - bare)
            samples["speed"].append(gigabytes / ours)
            samples["fetch"].append(fetch_cost)
            samples["fetch speed"].append(gigabytes / fetched)
    return [
        figure("produce 1 KiB, acks=1: broker CPU", "CPU-s/GB", samples["produce"], solid=0.80, aim=0.60),
        figure("  a bare pwrite of as many bytes", "CPU-s/GB", samples["bare"]),
        figure("  above the bare write, run by run", "CPU-s/GB", samples["above"]),
        figure(
            "produce relative to librdkafka's mock", "ratio", samples["ratio"], solid=0.75, aim=1.0, more_is_better=True
        ),
        figure("produce 1 KiB, acks=1", "GB/s", samples["speed"]),
        figure("fetch over TCP: broker CPU", "CPU-s/GB", samples["fetch"], solid=0.35, aim=0.20),
        figure("fetch over TCP, confluent-kafka from Python", "GB/s", samples["fetch speed"]),
    ]


def consume(client: Mapping[str, str], topic: str, count: int) -> None:
    consumer = Consumer(
        {
            **client,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        seen += len(consumer.consume(10_000, 1.0))
    consumer.close()


def _bare_write_cost(data_dir: Path, megabytes: int) -> float:
    """CPU seconds per GB of pwrite alone, in pieces of a MiB, into a new file on the same disk."""
    piece = os.urandom(1 << 20)
    count = megabytes * 1_000_000 // len(piece)
    path = data_dir / "bare-write"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    before = os.times()
    for number in range(count):
        os.pwrite(descriptor, piece, number * len(piece))
    after = os.times()
    os.close(descriptor)
    path.unlink()
    return (after.user + after.system - before.user - before.system) / (count * len(piece) / 1e9)


def ack_latency(bootstrap_servers: str, *, count: int = 2000, per_second: int = 200) -> list[Figure]:
    """From produce() to the delivery report inside librdkafka, one record at a time."""
    latencies: list[float] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "acks": "all"})

    def delivered(_: object, message: Message) -> None:
        latencies.append((message.latency() or 0.0) * 1000)

    producer.produce("latency", b"warm")
    producer.flush()
    for _ in range(count):
        producer.produce("latency", b"x", on_delivery=delivered)
        producer.poll(1 / per_second)
    producer.flush()
    ordered = sorted(latencies)
    p50, p99 = percentile(ordered, 50), percentile(ordered, 99)
    progress(f"ack latency: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    return [
        figure("ack latency p50", "ms", [p50], solid=0.4, aim=0.2),
        figure("ack latency p99", "ms", [p99], solid=5.0, aim=1.5),
    ]
