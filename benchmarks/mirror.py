"""(shell) A flow of a mirror between two raylog clusters, and Apache's MirrorMaker 2 between the same ones.

Throughput is that of producing to the source and copying at once, by a process that is already running and idle;
latency is the time from a record's timestamp to its delivery by the target. MirrorMaker is left out where
script/kafka has not brought it.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.figures import Figure, cpu_seconds, figure, percentile, progress
from benchmarks.librdkafka import NativeProducer
from benchmarks.wire import PRODUCER
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.admin.topics import NewTopic
from raylog.core.ids import TopicPartition as Partition
from tests.mirror.flow_process import FlowProcess
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.java_process import write_properties
from tests.support.kafka_peer import ROOT, java_command
from tests.support.ports import free_port

VALUE: Final = b"x" * 1024
RATE: Final = 1_000
LATENCY_RECORDS: Final = 5_000
COPIED_SECONDS: Final = 300.0
CONFIG: Final = {"message.max.bytes": "2000000", "group.initial.rebalance.delay.ms": "0"}
RAYLOG: Final = "raylog, at least once"
MIRROR_MAKER: Final = "MirrorMaker 2, at least once"
JAVA_OPTIONS: Final = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def measure(runs: int, megabytes: int, path: str | None) -> list[Figure]:
    with TemporaryDirectory(prefix="raylog-bench-", dir=path) as folder:
        root = Path(folder)
        with cluster_process(CONFIG, root / "source") as source, cluster_process(CONFIG, root / "target") as target:
            return _Mirrors(source, target, root).measure(runs, megabytes)


class _MirrorMaker:
    def __init__(self, entries: Mapping[str, str], folder: Path) -> None:
        kinds = ("config", "offset", "status")
        storage = {f"{alias}.{kind}.storage.replication.factor": "1" for alias in "AB" for kind in kinds}
        listener = {"listeners": f"http://127.0.0.1:{free_port()}", "refresh.topics.interval.seconds": "1"}
        file = write_properties(folder / "mm2.properties", {**entries, **storage, **listener})
        command = java_command("org.apache.kafka.connect.mirror.MirrorMaker", file, options=JAVA_OPTIONS)
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


Start = Callable[[str, Path], FlowProcess | _MirrorMaker]
"""Starts to copy a topic; the folder is for files."""


class _Mirrors:
    """Both between the same clusters."""

    def __init__(self, source: ClusterProcess, target: ClusterProcess, root: Path) -> None:
        self._source = source.bootstrap_servers
        self._target = target.bootstrap_servers
        self._root = root
        self._topics = 0

    def measure(self, runs: int, megabytes: int) -> list[Figure]:
        kinds: dict[str, Start] = {
            RAYLOG: lambda topic, folder: FlowProcess(self._entries(topic), folder / "log"),
            "raylog, exactly once": lambda topic, folder: FlowProcess(self._entries(topic, eos=True), folder / "log"),
        }
        if _has_kafka():
            kinds[MIRROR_MAKER] = lambda topic, folder: _MirrorMaker(self._entries(topic), folder)
        rates: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        figures = []
        for _ in range(runs):
            for kind, start in kinds.items():
                rates[kind].append(self._copy(start, megabytes))
                progress(f"{kind}: {rates[kind][-1][0]:.1f} MB/s, {rates[kind][-1][1]:.2f} CPU-s/GB")
        for kind, found in rates.items():
            figures.append(figure(f"mirror, {kind}", "MB/s", [rate for rate, _ in found], more_is_better=True))
            figures.append(figure(f"mirror, {kind}", "CPU-s/GB", [cost for _, cost in found]))
        if MIRROR_MAKER in kinds:
            both = list(zip(rates[RAYLOG], rates[MIRROR_MAKER], strict=True))
            faster, cheaper = (
                [ours[0] / theirs[0] for ours, theirs in both],
                [ours[1] / theirs[1] for ours, theirs in both],
            )
            figures.append(
                figure("mirror, throughput by MirrorMaker's", "x", faster, solid=2.0, aim=4.0, more_is_better=True)
            )
            figures.append(figure("mirror, CPU time by MirrorMaker's", "x", cheaper, solid=0.5, aim=0.25))
        for kind, start in kinds.items():
            latencies = sorted(self._latencies(start))
            for percent in (50, 99):
                name = f"mirror, {kind}: latency p{percent} at {RATE:,} records/s"
                figures.append(figure(name, "ms", [percentile(latencies, percent)]))
        return figures

    def _entries(self, topic: str, *, eos: bool = False) -> dict[str, str]:
        factors = ("", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")
        return {
            "clusters": "A,B",
            "A.bootstrap.servers": self._source,
            "B.bootstrap.servers": self._target,
            "A->B.enabled": "true",
            "B->A.emit.heartbeats.enabled": "false",
            "topics": topic,
            "emit.heartbeats.enabled": "false",
            "exactly.once.source.support": "enabled" if eos else "disabled",
            **{f"{each}replication.factor": "1" for each in factors},
        }

    @contextmanager
    def _copying(self, start: Start) -> Iterator[tuple[str, int]]:
        """A new topic that is copied, and the process. Both ends have the topic."""
        self._topics += 1
        topic = f"bench-{self._topics}"
        folder = self._root / topic
        folder.mkdir()
        with (
            AdminClient(bootstrap_servers=self._source) as source,
            AdminClient(bootstrap_servers=self._target) as target,
        ):
            source.create_topics(NewTopic(topic, 1, 1))
            target.create_topics(NewTopic(f"A.{topic}", 1, 1))
        process = start(topic, folder)
        try:
            yield topic, process.pid
        finally:
            process.kill()

    def _copy(self, start: Start, megabytes: int) -> tuple[float, float]:
        """(MB/s, CPU seconds per GB)"""
        count = megabytes * 1_000_000 // len(VALUE)
        with self._copying(start) as (topic, pid), AdminClient(bootstrap_servers=self._target) as admin:
            self._produce_one(topic)
            copy = Partition(f"A.{topic}", 0)

            def end() -> int:
                return admin.list_offsets({copy: OffsetSpec.LATEST})[copy].offset

            _wait(lambda: end() > 0)  # it is running, and idle
            before = cpu_seconds(pid)
            began = time.perf_counter()
            with NativeProducer(topic, VALUE, {**PRODUCER, "bootstrap.servers": self._source}) as producer:
                producer.send(count)
            _wait(lambda: end() > count)
            seconds, gigabytes = time.perf_counter() - began, count * len(VALUE) / 1e9
            return gigabytes * 1000 / seconds, (cpu_seconds(pid) - before) / gigabytes

    def _produce_one(self, topic: str) -> None:
        with NativeProducer(topic, VALUE, {**PRODUCER, "bootstrap.servers": self._source}) as producer:
            producer.send(1)

    def _latencies(self, start: Start) -> list[float]:
        """Milliseconds of each record."""
        with self._copying(start) as (topic, _):
            consumer = Consumer({"bootstrap.servers": self._target, "group.id": "bench", "fetch.wait.max.ms": 100})
            consumer.assign([TopicPartition(f"A.{topic}", 0, 0)])
            self._produce_one(topic)
            _wait(lambda: len(consumer.consume(1, 1.0)) == 1)
            producer = Producer({"bootstrap.servers": self._source, "linger.ms": 0})
            found: list[float] = []
            began, sent = time.perf_counter(), 0
            while len(found) < LATENCY_RECORDS:
                if time.perf_counter() - began > COPIED_SECONDS:
                    raise TimeoutError(f"{len(found)} records were copied")
                due = min(LATENCY_RECORDS, int((time.perf_counter() - began) * RATE))
                for _ in range(due - sent):
                    producer.produce(topic, VALUE, partition=0, timestamp=time.time_ns() // 1_000_000)
                sent = max(sent, due)
                producer.poll(0)
                arrived = consumer.consume(1000, 0.001)
                now_ms = time.time_ns() / 1e6
                found += [now_ms - message.timestamp()[1] for message in arrived if message.error() is None]
            consumer.close()
            return found


def _has_kafka() -> bool:
    if any(ROOT.glob(".kafka/[0-9]*/classpath")) and shutil.which("java") is not None:
        return True
    progress("mirror: not compared with MirrorMaker 2, which script/kafka brings")
    return False


def _wait(met: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + COPIED_SECONDS
    while not met():
        if time.perf_counter() > deadline:
            raise TimeoutError("records are not copied")
        time.sleep(0.01)
