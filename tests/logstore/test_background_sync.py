"""Closed segments become durable in the background, and the active one when flush.ms has passed."""

from __future__ import annotations

import errno
import random
from uuid import UUID

import pytest

from raylog.core.errors import KafkaError
from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.support.sim_disk import SimDisk

TP = TopicPartition("t", 0)
SETTINGS = LogSettings(segment_bytes=400)
FLUSH_MS = 100


def open_log(disk: SimDisk, recovery_point: int = 0) -> Log:
    log = Log.open(disk, "/t-0", TP, SETTINGS, now_ms=0, recovery_point=Offset(recovery_point), clean=False)
    log.topic_id = UUID(int=1)
    return log


def append(log: Log, count: int) -> None:
    for _ in range(count):
        batch = build_batch(
            [NewRecord(None, b"x" * 150, 0)], producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset
        )
        log.append_as_leader(memoryview(batch), leader_epoch=LeaderEpoch(0), now_ms=0)


def test_synced_segments_survive_a_power_failure_and_are_not_scanned_again() -> None:
    for seed in range(30):
        disk = SimDisk(random.Random(seed))
        log = open_log(disk)
        append(log, 11)
        plan = log.plan_sync(0)
        assert plan is not None
        assert log.plan_sync(0) is None, "one plan at a time"
        append(log, 4)  # the log goes on meanwhile
        plan.run(disk)
        log.sync_ended(plan, None)
        assert log.recovery_point == plan.upto == 10
        disk.crash(power_cut=True)
        disk.overwrite("/t-0/00000000000000000000.index", b"")
        again = open_log(disk, recovery_point=plan.upto)
        assert again.log_end_offset >= plan.upto
        read = again.read(Offset(0), max_bytes=1 << 20, upto=again.log_end_offset)
        assert read.next_offset > 0


def test_a_failed_sync_takes_the_log_offline() -> None:
    disk = SimDisk(random.Random(0))
    log = open_log(disk)
    append(log, 5)
    plan = log.plan_sync(0)
    assert plan is not None
    log.sync_ended(plan, OSError(errno.EIO, "the disk says no"))
    assert log.recovery_point == 0
    with pytest.raises(KafkaError, match="cannot flush"):
        append(log, 1)


def test_too_many_open_files_only_delay_the_sync() -> None:
    disk = SimDisk(random.Random(0))
    log = open_log(disk)
    append(log, 9)
    disk.fail_next("open", errno.EMFILE)  # leader epochs are written first
    assert log.plan_sync(0) is None
    plan = log.plan_sync(0)
    assert plan is not None
    disk.fail_next("fsync_path", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files") as caught:
        plan.run(disk)
    log.sync_ended(plan, caught.value)
    assert log.recovery_point == 0
    again = log.plan_sync(0)
    assert again is not None
    again.run(disk)
    log.sync_ended(again, None)
    assert log.recovery_point == again.upto > 0


def test_a_plan_from_before_a_truncation_does_not_count() -> None:
    disk = SimDisk(random.Random(0))
    log = open_log(disk)
    append(log, 9)
    plan = log.plan_sync(0)
    assert plan is not None
    log.truncate_to(Offset(3))
    log.sync_ended(plan, None)
    assert log.recovery_point <= 3


def test_segments_deleted_meanwhile_are_no_error() -> None:
    disk = SimDisk(random.Random(0))
    log = open_log(disk)
    append(log, 9)
    plan = log.plan_sync(0)
    assert plan is not None
    log.delete_records_before(Offset(6))
    log.apply_retention(0)
    plan.run(disk)
    log.sync_ended(plan, None)
    assert log.recovery_point == plan.upto


def flushed_each(ms: int, disk: SimDisk) -> Log:
    log = open_log(disk)
    log.settings = LogSettings(flush_ms=ms)
    return log


def test_flush_ms_syncs_everything_in_the_background() -> None:
    disk = SimDisk(random.Random(0))
    log = flushed_each(FLUSH_MS, disk)
    append(log, 3)
    before = disk.op_count
    assert log.plan_sync(FLUSH_MS - 1) is None
    assert disk.op_count == before
    plan = log.plan_sync(FLUSH_MS)
    assert plan is not None
    assert log.recovery_point == 0
    plan.run(disk)
    log.sync_ended(plan, None)
    assert log.recovery_point == 3
    assert log.plan_sync(10 * FLUSH_MS) is None, "everything is synced"
    disk.crash(power_cut=True)
    assert open_log(disk, recovery_point=3).log_end_offset == 3


def test_records_appended_while_a_flush_runs_are_flushed_by_the_next_one() -> None:
    disk = SimDisk(random.Random(0))
    log = flushed_each(FLUSH_MS, disk)
    append(log, 1)
    plan = log.plan_sync(FLUSH_MS)
    assert plan is not None
    append(log, 1)
    plan.run(disk)
    log.sync_ended(plan, None)
    assert log.recovery_point == 1
    again = log.plan_sync(FLUSH_MS)
    assert again is not None
    assert again.upto == 2


@pytest.mark.parametrize("end", ["too many files", "truncation"])
def test_records_of_a_flush_that_was_not_carried_out_are_flushed_by_the_next_one(end: str) -> None:
    disk = SimDisk(random.Random(0))
    log = flushed_each(FLUSH_MS, disk)
    append(log, 3)
    plan = log.plan_sync(FLUSH_MS)
    assert plan is not None
    if end == "truncation":
        log.truncate_to(Offset(2))
        plan.run(disk)
        log.sync_ended(plan, None)
    else:
        log.sync_ended(plan, OSError(errno.EMFILE, "too many files"))
    assert log.recovery_point == 0
    again = log.plan_sync(FLUSH_MS)
    assert again is not None
    assert again.upto == log.log_end_offset


def test_a_segment_closed_while_it_is_flushed_is_synced_with_its_indexes_later() -> None:
    disk = SimDisk(random.Random(0))
    log = flushed_each(FLUSH_MS, disk)
    append(log, 1)
    plan = log.plan_sync(FLUSH_MS)
    assert plan is not None
    log.roll(0)
    plan.run(disk)
    log.sync_ended(plan, None)
    again = log.plan_sync(0)
    assert again is not None
    assert "/t-0/00000000000000000000.index" in again.paths
