"""(shell) Measures the paths of the data against their budgets: `script/bench --runs 3 --megabytes 500`.

Machines are shared and noisy, so every figure is a median over runs, throughput stands as a ratio to a yardstick run
in turn with ours, and cost is CPU seconds of the broker's process per GB (10**9 bytes) of record batches.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

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
RESULTS = Path("bench-results")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured path: what came out, and what DESIGN asks for."""

    path: str
    unit: str
    median: float
    runs: list[float]
    solid: float | None
    aim: float | None
    more_is_better: bool = False

    def verdict(self) -> str:
        if self.solid is None or self.aim is None:
            return ""
        sign = 1 if self.more_is_better else -1
        if sign * self.median >= sign * self.aim:
            return "aim"
        return "solid" if sign * self.median >= sign * self.solid else "missed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each path; the median is shown")
    parser.add_argument("--megabytes", type=int, default=400, help="record bytes of each run")
    parser.add_argument("--dir", help="where the broker's temporary directory is made: the disk to measure")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)

    import raylog

    with raylog.start("bench-ray") as first:
        assert first.status()
        start_up = _start_up(arguments.runs)
        config = {"message.max.bytes": 2_000_000, "num.partitions": 1}
        with (
            TemporaryDirectory(prefix="raylog-bench-", dir=arguments.dir) as folder,
            raylog.start("bench", data_dir=f"{folder}/data", config=config) as cluster,
        ):
            pid, servers = cluster.status()[0].pid, cluster.bootstrap_servers
            figures = [
                *_produce_and_fetch(servers, pid, Path(folder), arguments.runs, arguments.megabytes),
                *_ack_latency(servers),
                start_up,
            ]
    _show(figures)
    _write(figures, vars(arguments))
    return 0


def _produce_and_fetch(bootstrap_servers: str, pid: int, data_dir: Path, runs: int, megabytes: int) -> list[Figure]:
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
            before = _cpu_seconds(pid)
            ours = _timed(lambda: producer.send(count))
            produce_cost = (_cpu_seconds(pid) - before) / gigabytes
        with NativeProducer(topic, VALUE, {**PRODUCER, "test.mock.num.brokers": "1"}) as producer:
            producer.send(1)
            mock = _timed(lambda: producer.send(count))
        before = _cpu_seconds(pid)
        fetched = _timed(partial(_consume, bootstrap_servers, topic, count))
        fetch_cost = (_cpu_seconds(pid) - before) / gigabytes
        bare = _bare_write_cost(data_dir, megabytes)
        admin.delete_topics([topic])[topic].result()
        _progress(
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
        _figure("produce 1 KiB, acks=1: broker CPU", "CPU-s/GB", samples["produce"], solid=0.80, aim=0.60),
        _figure("  a bare pwrite of as many bytes", "CPU-s/GB", samples["bare"]),
        _figure("  above the bare write, run by run", "CPU-s/GB", samples["above"]),
        _figure(
            "produce relative to librdkafka's mock", "ratio", samples["ratio"], solid=0.75, aim=1.0, more_is_better=True
        ),
        _figure("produce 1 KiB, acks=1", "GB/s", samples["speed"]),
        _figure("fetch over TCP: broker CPU", "CPU-s/GB", samples["fetch"], solid=0.35, aim=0.20),
        _figure("fetch over TCP, confluent-kafka from Python", "GB/s", samples["fetch speed"]),
    ]


def _consume(bootstrap_servers: str, topic: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
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


def _ack_latency(bootstrap_servers: str, *, count: int = 2000, per_second: int = 200) -> list[Figure]:
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
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    _progress(f"ack latency: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    return [
        _figure("ack latency p50", "ms", [p50], solid=0.4, aim=0.2),
        _figure("ack latency p99", "ms", [p99], solid=5.0, aim=1.5),
    ]


def _start_up(runs: int) -> Figure:
    import raylog

    seconds = []
    for run in range(runs):
        begun = time.perf_counter()
        cluster = raylog.start(f"bench-start-{run}")
        seconds.append(time.perf_counter() - begun)
        cluster.stop()
    _progress(f"start-up: {statistics.median(seconds):.2f} s")
    return _figure("start of an embedded broker in a running Ray", "s", seconds, solid=3.0, aim=1.0)


def _figure(
    path: str,
    unit: str,
    runs: list[float],
    *,
    solid: float | None = None,
    aim: float | None = None,
    more_is_better: bool = False,
) -> Figure:
    return Figure(path, unit, statistics.median(runs), runs, solid, aim, more_is_better)


def _timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _cpu_seconds(pid: int) -> float:
    """User and system time of the process so far (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(figures: list[Figure]) -> None:
    print(f"\n{'path':48} {'median':>10} {'min':>8} {'max':>8}  {'unit':10} {'solid':>6} {'aim':>6}  verdict")
    for figure in figures:
        budget = f"{figure.solid or '':>6} {figure.aim or '':>6}"
        spread = f"{figure.median:10.3f} {min(figure.runs):8.3f} {max(figure.runs):8.3f}"
        print(f"{figure.path:48} {spread}  {figure.unit:10} {budget}  {figure.verdict()}")


def _write(figures: list[Figure], arguments: dict[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y-%m-%dT%H%M%S')}.json"
    machine = {"cpus": os.cpu_count(), "load": os.getloadavg()}
    rows = [{**asdict(figure), "verdict": figure.verdict()} for figure in figures]
    path.write_text(json.dumps({"arguments": arguments, "machine": machine, "figures": rows}, indent=2))
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    sys.exit(main())
