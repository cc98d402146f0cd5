"""Record sets as a producer would send them, and logs on a simulated disk."""

from __future__ import annotations

import random
from collections.abc import Sequence

from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.deletion import DeletionPlan
from raylog.logstore.log import Log, LogAppendInfo
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.markers import EndTransactionMarker, build_marker
from raylog.protocol.records.reader import read_batches
from tests.support.sim_disk import SimDisk

TP = TopicPartition("topic", 0)
PATH = "/data/topic-0"
NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(3)


def batch(
    *values: bytes,
    timestamp_ms: int = NOW,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch of these values; `producer` is (id, epoch, base sequence)."""
    return build_batch(
        [NewRecord(None, value, timestamp_ms) for value in values],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
        control=control,
    )


def marker(
    producer_id: int, *, committed: bool, producer_epoch: int = 0, coordinator_epoch: int = 0, timestamp_ms: int = NOW
) -> bytearray:
    """The control batch that ends the producer's transaction."""
    return build_marker(
        EndTransactionMarker(committed, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=timestamp_ms,
    )


def new_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.mkdir("/data")
    disk.fsync_dir("")
    return disk


def open_log(
    disk: SimDisk,
    settings: LogSettings | None = None,
    *,
    recovery_point: int = 0,
    clean: bool = False,
    log_start_offset: int = 0,
    cleaned_upto: int = 0,
    now_ms: int = NOW,
) -> Log:
    return Log.open(
        disk,
        PATH,
        TP,
        settings or LogSettings(),
        now_ms=now_ms,
        recovery_point=Offset(recovery_point),
        clean=clean,
        log_start_offset=Offset(log_start_offset),
        cleaned_upto=Offset(cleaned_upto),
    )


def append(
    log: Log, *sets: bytes | bytearray, now_ms: int = NOW, epoch: int = EPOCH, from_client: bool = True
) -> LogAppendInfo:
    """Appends the batches as one record set; several as a coordinator, since a client sends one."""
    return log.append_as_leader(
        memoryview(bytearray().join(sets)),
        leader_epoch=LeaderEpoch(epoch),
        now_ms=now_ms,
        from_client=from_client and len(sets) == 1,
    )


def contents(log: Log, *, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record, read slice after slice."""
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        piece = log.read(at, max_bytes=max_bytes, upto=log.log_end_offset)
        assert piece.next_offset > at
        found += [(record.offset, record.value) for record in read_batches(piece.records, from_offset=at)]
        at = piece.next_offset
    return found


def numbered(values: Sequence[bytes], first: int = 0) -> list[tuple[int, bytes]]:
    return list(enumerate(values, first))


def delete_retired(log: Log, disk: SimDisk, now_ms: int) -> None:
    """What the log directory's deletion does for one log."""
    plan = DeletionPlan(disk, None, log.due_deletions(now_ms))
    try:
        plan.run()
    finally:
        plan.ended()
