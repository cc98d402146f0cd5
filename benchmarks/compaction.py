"""(shell) The log cleaner: how fast it reads, and its CPU seconds per GB read, by size of records and batches."""

from __future__ import annotations

import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.figures import Figure, figure, progress
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
    figures: list[Figure] = []
    for shape in SHAPES:
        with TemporaryDirectory(prefix="raylog-bench-", dir=folder) as path:
            log = _filled(Path(path), shape, int(megabytes * shape.share * 1_000_000))
            costs = [_clean(log) for _ in range(runs)]
            log.abandon()
        name = f"compaction, {shape.name}"
        figures.append(figure(f"{name}: read per core", "MB/s", [1000 / cost for cost in costs], more_is_better=True))
        figures.append(figure(f"{name}: cost", "CPU-s/GB", costs))
        progress(f"{name}: {figures[-2].median:.0f} MB/s and core")
    return figures


def _filled(path: Path, shape: Shape, size_bytes: int) -> Log:
    settings = LogSettings(is_compacted=True, segment_bytes=100 << 20)
    log = Log.open(
        RealDisk(),
        str(path / "t-0"),
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


def _clean(log: Log) -> float:
    """CPU seconds per GB of the log. The log stays as it is."""
    found = log.cleanable(limit=log.log_end_offset, now_ms=NOW_MS)
    assert found is not None
    plan = log.plan_cleaning(found, now_ms=NOW_MS, secret=bytes(SECRET_BYTES))
    begun = time.process_time()
    clean(RealDisk(), plan, BUFFERS)
    return (time.process_time() - begun) / (found.dirty_bytes / 1e9)
