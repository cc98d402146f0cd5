"""(shell) Transports other than TCP: mapped reads, Arrow columns, and how soon a reader has what was produced."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import raylog
from benchmarks.figures import Figure, figure, percentile, progress, timed
from benchmarks.librdkafka import NativeProducer
from benchmarks.wire import PRODUCER
from raylog import Cluster, PartitionReader
from raylog.client.network_loop import NetworkLoop
from raylog.core.ids import TopicPartition
from raylog.logstore.shared_page import PageSnapshot, PageView, SharedPage
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.transport import unix
from raylog.transport.doorbell import Doorbell, Sleeper
from tests.support.raw_client import RawClient

LATENCY_RECORDS = 500
LATENCY_PAUSE_SECONDS = 0.005
TRANSPORTS = ("mapped", "unix", "tcp", "handle")


def measure(cluster: Cluster, runs: int, megabytes: int) -> list[Figure]:
    latencies = [each for transport in TRANSPORTS for each in _latency(cluster, transport)]
    return [*_mapped_reads(cluster, runs, megabytes), *_wake(), *latencies]


def _mapped_reads(cluster: Cluster, runs: int, megabytes: int) -> list[Figure]:
    large, small = 1024, 100
    counts = {size: megabytes * 1_000_000 // size for size in (large, small)}
    for size, count in counts.items():
        settings = {**PRODUCER, "bootstrap.servers": cluster.bootstrap_servers}
        with NativeProducer(f"bench-local-{size}", b"x" * size, settings) as producer:
            producer.send(count)
    with (
        PartitionReader(cluster.bootstrap_servers, f"bench-local-{large}", 0) as of_large,
        PartitionReader(cluster.bootstrap_servers, f"bench-local-{small}", 0) as of_small,
    ):
        gigabytes = counts[large] * large / 1e9
        whole = _rates(partial(_read_all, of_large, counts[large]), runs, gigabytes)
        large_values = _rates(partial(_read_values, of_large, counts[large]), runs, gigabytes)
        small_values = _rates(partial(_read_values, of_small, counts[small]), runs, counts[small] / 1e6)
        assert of_large.reads_files
        assert of_small.reads_files
    figures = [
        figure("mapped read with CRC check", "GB/s", whole, solid=5.0, aim=10.0, more_is_better=True),
        figure("mapped 1 KiB values to Arrow", "GB/s", large_values, solid=5.0, aim=10.0, more_is_better=True),
        figure("mapped 100 B values to Arrow", "M rows/s", small_values, solid=15.0, aim=30.0, more_is_better=True),
    ]
    for each in figures:
        progress(f"{each.path}: {each.median:.1f} {each.unit}")
    return figures


def _rates(work: Callable[[], None], runs: int, amount: float) -> list[float]:
    work()  # compiles, and brings the file into the page tables once
    return [amount / timed(work) for _ in range(runs)]


def _read_all(reader: PartitionReader, count: int) -> None:
    reader.seek(0)
    while reader.position < count:
        chunk = reader.read(max_bytes=4 << 20)
        assert chunk is not None
        assert reader.accept(chunk)


def _read_values(reader: PartitionReader, count: int) -> None:
    reader.seek(0)
    rows = 0
    while rows < count:
        rows += sum(batch.num_rows for batch in reader.read_arrow(["value"], max_bytes=4 << 20))


def _latency(cluster: Cluster, transport: str) -> list[Figure]:
    """From just before Produce is sent to when a reader in another process holds the record, one at a time."""
    topic = f"bench-latency-{transport}"
    tp = TopicPartition(topic, 0)
    with RawClient(cluster.bootstrap_servers, client_id="bench") as client:
        client.metadata([topic], create=True)
        client.produce(tp, build_batch([NewRecord(None, b"0", 1000)]))
        command = [sys.executable, "-m", "benchmarks.local", transport, cluster.name, cluster.bootstrap_servers]
        environment = {"ray_address": cluster.ray_address}
        with subprocess.Popen([*command, json.dumps(environment)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(LATENCY_RECORDS):
                now = b"%d" % time.monotonic_ns()
                client.produce(tp, build_batch([NewRecord(None, now, 1000)]))
                time.sleep(LATENCY_PAUSE_SECONDS)
            microseconds = sorted(json.loads(process.stdout.readline()))
    p50, p99 = percentile(microseconds, 50), percentile(microseconds, 99)
    progress(f"produce to reader by {transport}: p50 {p50:.0f} us, p99 {p99:.0f} us")
    return [
        figure(f"produce to a reader in another process, {transport}, p50", "us", [p50]),
        figure(f"produce to a reader in another process, {transport}, p99", "us", [p99]),
    ]


def _wake() -> list[Figure]:
    """Time from publishing a page until a sleeping reader has read it: what the local endpoint adds to Produce."""
    page, bell = SharedPage(_page(0)), Doorbell()
    descriptors = (page.descriptor, *bell.descriptors)
    command = [sys.executable, "-m", "benchmarks.local", "wake", *map(str, descriptors)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=descriptors) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(LATENCY_RECORDS):
            time.sleep(LATENCY_PAUSE_SECONDS)
            page.publish(_page(time.monotonic_ns()))
            bell.ring()
        microseconds = sorted(json.loads(process.stdout.readline()))
    page.close()
    bell.close()
    p50, p99 = percentile(microseconds, 50), percentile(microseconds, 99)
    progress(f"wake of a local reader: p50 {p50:.0f} us, p99 {p99:.0f} us")
    return [
        figure("wake of a local reader p50", "us", [p50], solid=60.0, aim=30.0),
        figure("wake of a local reader p99", "us", [p99]),
    ]


def _page(high_watermark: int) -> PageSnapshot:
    return PageSnapshot(0, high_watermark, high_watermark, high_watermark, 0, 0, 0, 0, 0)


def _sleep_and_wake(page: int, event: int, flag: int) -> None:
    """The sleeper's process."""
    view, sleeper = PageView(page), Sleeper(event, flag)
    poller = select.poll()
    poller.register(sleeper, select.POLLIN)
    microseconds: list[float] = []
    seen = 0
    print("ready", flush=True)
    while len(microseconds) < LATENCY_RECORDS:
        sleeper.arm()
        snapshot = view.snapshot()
        if snapshot is None or snapshot.high_watermark == seen:
            poller.poll()
            snapshot = view.snapshot()
        sleeper.disarm()
        if snapshot is not None and snapshot.high_watermark != seen:
            microseconds.append((time.monotonic_ns() - snapshot.high_watermark) / 1000)
            seen = snapshot.high_watermark
    print(json.dumps(microseconds), flush=True)


def _read_latencies(transport: str, name: str, servers: str, where: dict[str, str]) -> None:
    """The reader's process."""
    if transport in ("tcp", "handle"):
        unix.runtime_dirs = tuple
    if transport == "handle":
        raylog.connect(name, address=where["ray_address"])
        servers = f"ray://{name}"
        NetworkLoop._connect_by_network = _no_path  # type: ignore[assignment,method-assign]
    topic = f"bench-latency-{transport}"
    microseconds: list[float] = []
    with PartitionReader(servers, topic, 0, mapped=transport == "mapped") as reader:
        assert len(reader.read_records(max_wait_ms=10_000)) == 1
        print("ready", flush=True)
        while len(microseconds) < LATENCY_RECORDS:
            records = reader.read_records(max_wait_ms=10_000)
            now = time.monotonic_ns()
            microseconds += [(now - int(record.value or b"")) / 1000 for record in records]
    print(json.dumps(microseconds), flush=True)


def _no_path(*_: object) -> None:
    raise OSError("only the actor is to be used")


if __name__ == "__main__":
    if sys.argv[1] == "wake":
        _sleep_and_wake(*map(int, sys.argv[2:]))
    else:
        _read_latencies(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
