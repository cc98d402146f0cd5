"""(shell) The log cleaner: how fast it is, and its CPU seconds per GB of a log, by size of records and batches.

Megabytes are those of the log before the cleaning, which reads them twice.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.figures import Figure, figure, progress
from benchmarks.kafka_cleaner import SEGMENT_BYTES, Cost, kafka_cleaner
from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.cleaner import CleanerBuffers, clean
from raylog.logstore.disk import RealDisk
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compaction import SECRET_BYTES
from raylog.protocol.records.compression import Codec

KEYS: Final = 200_000
BUFFERS: Final = CleanerBuffers(128 << 20, 512 << 10, 0.9, float("inf"))
NOW_MS: Final = 1_700_000_000_000


class Shape(NamedTuple):
    """What a log consists of, and its share of the megabytes that are asked for."""

    name: str
    value_bytes: int
    batch_records: int
    codec: Codec
    share: float


SHAPES: Final = (
    Shape("1 KB records, 16 in a batch", 1000, 16, Codec.NONE, 1.0),
    Shape("100 B records, 100 in a batch", 100, 100, Codec.NONE, 0.5),
    Shape("100 B records, 100 in a batch, lz4", 100, 100, Codec.LZ4, 0.2),
    Shape("100 B records, one in a batch", 100, 1, Codec.NONE, 0.05),
)


def measure(runs: int, megabytes: int, folder: str | None) -> list[Figure]:
    """The cleaner's figures, and those of Apache Kafka's on the same logs, in turn, if there is one."""
    figures: list[Figure] = []
    with TemporaryDirectory(prefix="raylog-bench-", dir=folder) as path:
        logs = {
            f"shape-{number}": _filled(Path(path) / f"shape-{number}", shape, int(megabytes * shape.share * 1_000_000))
            for number, shape in enumerate(SHAPES)
        }
        with kafka_cleaner(Path(path) / "kafka", {name: Path(log.path) for name, log in logs.items()}, runs) as kafka:
            for (name, log), shape in zip(logs.items(), SHAPES, strict=True):
                pairs = [(_clean(log), kafka.clean(name) if kafka else None) for _ in range(runs)]
                figures += _figures(shape, pairs)
                log.abandon()
    return figures


def _figures(shape: Shape, pairs: list[tuple[Cost, Cost | None]]) -> list[Figure]:
    """`pairs` are the costs of our cleaner and of Apache Kafka's."""
    name = f"compaction, {shape.name}"
    ours = [each for each, _ in pairs]
    theirs = [each for _, each in pairs if each is not None]
    figures = [
        figure(f"{name}: rate", "MB/s", [each.megabytes_per_second for each in ours], more_is_better=True),
        figure(f"{name}: cost", "CPU-s/GB", [each.cpu_seconds_per_gb for each in ours]),
    ]
    if theirs:
        figures += [
            figure(f"{name}: rate of Apache Kafka", "MB/s", [each.megabytes_per_second for each in theirs]),
            figure(f"{name}: cost of Apache Kafka", "CPU-s/GB", [each.cpu_seconds_per_gb for each in theirs]),
        ]
    progress(", ".join(f"{each.path.removeprefix(name)[2:]} {each.median:.1f} {each.unit}" for each in figures))
    return figures


def _filled(path: Path, shape: Shape, size_bytes: int) -> Log:
    progress(f"compaction: writes {size_bytes / 1e6:.0f} MB, {shape.name}")
    settings = LogSettings(is_compacted=True, segment_bytes=SEGMENT_BYTES)
    log = Log.open(
        RealDisk(),
        str(path),
        TopicPartition("t", 0),
        settings,
        now_ms=NOW_MS,
        recovery_point=Offset(0),
        clean=False,
    )
    rng = random.Random(1)
    half = shape.value_bytes // 2
    values = [rng.randbytes(half) + b"x" * half for _ in range(500)]
    while log.size_bytes < size_bytes:
        records = [
            NewRecord(b"key-%012d" % rng.randrange(KEYS), rng.choice(values), NOW_MS)
            for _ in range(shape.batch_records)
        ]
        batch = memoryview(build_batch(records, codec=shape.codec))
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS, from_client=False)
    log.roll(NOW_MS)
    log.flush()
    return log


def _clean(log: Log) -> Cost:
    """The log stays as it is."""
    found = log.cleanable(limit=log.log_end_offset, now_ms=NOW_MS)
    assert found is not None
    plan = log.plan_cleaning(found, now_ms=NOW_MS, secret=bytes(SECRET_BYTES))
    begun, begun_cpu = time.perf_counter(), time.process_time()
    clean(RealDisk(), plan, BUFFERS)
    cpu, wall = time.process_time() - begun_cpu, time.perf_counter() - begun
    return Cost(found.dirty_bytes / 1e6 / wall, cpu / (found.dirty_bytes / 1e9))
