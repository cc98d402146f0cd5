"""Transient disk errors (no space, too many open files) take no log offline, and nothing is missing afterwards."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from raylog.core.errors import KafkaError
from raylog.core.ids import Offset
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import (
    EPOCH,
    NOW,
    PATH,
    append,
    batch,
    contents,
    delete_retired,
    marker,
    new_disk,
    numbered,
    open_log,
)
from tests.support.sim_disk import SimDisk

SETTINGS = LogSettings(segment_bytes=400, index_interval_bytes=50, file_delete_delay_ms=0)
VALUES = [b"%d" % number * 20 for number in range(12)]


def filled(disk: SimDisk, settings: LogSettings = SETTINGS) -> Log:
    """Several segments, some of them not synced; an aborted transaction in the active one."""
    log = open_log(disk, settings)
    for number, value in enumerate(VALUES):
        append(log, batch(value), epoch=EPOCH - (number < 8))
        if number == 5:
            log.flush()
    return log


def reopened(disk: SimDisk) -> Log:
    """Nothing of its closed segments is in memory yet."""
    filled(disk).close()
    return open_log(disk, SETTINGS, clean=True)


def produce(log: Log, disk: SimDisk) -> None:
    append(log, batch(b"more" * 30), epoch=log.leader_epochs.latest)


def produce_in_another_epoch(log: Log, disk: SimDisk) -> None:
    append(log, batch(b"more"), epoch=EPOCH + 1)
    log.flush()


def flush_closed_segments(log: Log, disk: SimDisk) -> None:
    plan = log.plan_sync(NOW)
    if plan is not None:
        try:
            plan.run(disk)
        except OSError as error:
            log.sync_ended(plan, error)
        else:
            log.sync_ended(plan, None)


def forget_old_records(log: Log, disk: SimDisk) -> None:
    log.settings = LogSettings(retention_bytes=300, file_delete_delay_ms=0)
    log.apply_retention(NOW)
    delete_retired(log, disk, NOW)


def forget_everything(log: Log, disk: SimDisk) -> None:
    log.settings = LogSettings(retention_ms=1, file_delete_delay_ms=0)
    log.apply_retention(NOW + 10)


def read_everything(log: Log, disk: SimDisk) -> None:
    assert contents(log)[: len(VALUES)] == numbered(VALUES)


def look_up(log: Log, disk: SimDisk) -> None:
    assert log.offset_for_timestamp(NOW, upto=Offset(4)) == (0, NOW, EPOCH - 1)
    assert log.offset_of_max_timestamp(upto=Offset(8)) == (0, NOW, EPOCH - 1)
    log.locate(Offset(5), upto=Offset(8))
    log.publish(Offset(3))


def cut(log: Log, disk: SimDisk) -> None:
    log.truncate_to(Offset(3))


def flush(log: Log, disk: SimDisk) -> None:
    log.flush()


ACTIONS: list[Callable[[Log, SimDisk], None]] = [
    produce,
    produce_in_another_epoch,
    flush,
    flush_closed_segments,
    forget_old_records,
    forget_everything,
    read_everything,
    look_up,
]


def attempt(action: Callable[[Log, SimDisk], None], log: Log, disk: SimDisk) -> bool:
    """Whether it went well."""
    with suppress(KafkaError):
        action(log, disk)
        return True
    assert log.offline_reason is None
    return False


def assert_sound(disk: SimDisk, log: Log) -> None:
    """Also after it was made durable and the power has gone."""
    for value in (b"last but one", b"last"):  # in another segment than what was written before
        log.roll(NOW)
        append(log, batch(value), epoch=log.leader_epochs.latest)
    kept = contents(log)
    epochs = log.leader_epochs.entries
    log.flush()
    recovery_point, log_start_offset = log.recovery_point, log.log_start_offset
    disk.crash(power_cut=True)
    again = open_log(disk, SETTINGS, recovery_point=recovery_point, log_start_offset=log_start_offset)
    assert contents(again) == kept
    assert again.leader_epochs.entries == epochs


@pytest.mark.parametrize("made", [filled, reopened])
@pytest.mark.parametrize("action", [*ACTIONS, cut])
def test_a_full_disk_has_no_lasting_effect(
    action: Callable[[Log, SimDisk], None], made: Callable[[SimDisk], Log]
) -> None:
    for room in range(0, 600, 25):
        disk = new_disk()
        log = made(disk)
        disk.capacity_bytes = disk.used_bytes() + room
        for _ in range(2):
            attempt(action, log, disk)
        disk.heal()
        assert attempt(action, log, disk)
        assert_sound(disk, log)


@pytest.mark.parametrize("made", [filled, reopened])
@pytest.mark.parametrize("action", ACTIONS)
def test_too_many_open_files_have_no_lasting_effect(
    action: Callable[[Log, SimDisk], None], made: Callable[[SimDisk], Log]
) -> None:
    for op in ("open", "fsync_dir", "fsync_path", "read_file"):
        for after in range(10):
            disk = new_disk()
            log = made(disk)
            disk.fail_next(op, errno.EMFILE, after=after)
            attempt(action, log, disk)
            disk.heal()
            assert attempt(action, log, disk)
            assert_sound(disk, log)


def test_a_truncation_that_could_not_write_epochs_does_not_restore_truncated_ones() -> None:
    for stop in ("flush", "crash"):
        disk = new_disk()
        log = open_log(disk)
        for number in range(4):
            append(log, batch(b"x"), epoch=number)
        log.flush()
        disk.fail_next("pwrite", errno.ENOSPC)
        log.truncate_to(Offset(2))
        append(log, batch(b"y"), epoch=7)
        if stop == "flush":
            log.flush()
        recovery_point = log.recovery_point
        disk.crash(power_cut=stop == "flush")
        again = open_log(disk, recovery_point=recovery_point)
        assert again.leader_epochs.entries == [(0, 0), (1, 1), (7, 2)]


def test_a_segment_with_an_interrupted_retirement_is_restored_with_its_transactions_or_deleted() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        disk.mkdir("/data")
        disk.fsync_dir("")
        log = open_log(disk, SETTINGS)
        append(log, batch(b"x", transactional=True, producer=(7, 0, 0)), from_client=False)
        append(log, marker(7, committed=False), from_client=False)
        log.roll(NOW)
        append(log, batch(b"y"))
        log.flush()
        log.delete_records_before(Offset(2))
        disk.fail_next("fsync_dir", errno.EMFILE)
        with suppress(KafkaError):
            log.apply_retention(NOW)
        assert log.log_start_offset == 2
        if seed % 2:
            log.apply_retention(NOW)
            assert ends_of_first_segment(disk) == {".deleted"}
        disk.crash(power_cut=True)
        again = open_log(disk, SETTINGS, recovery_point=Offset(3))
        if again.log_start_offset == 0:
            assert len(again.aborted_transactions(Offset(0), Offset(3))) == 1
        else:
            assert not ends_of_first_segment(disk)


def test_an_interrupted_retirement_deletes_no_later_segment() -> None:
    disk = new_disk()
    log = open_log(disk, SETTINGS)
    append(log, batch(b"x"))
    log.roll(NOW)
    append(log, batch(b"y"))
    log.delete_records_before(Offset(1))
    disk.fail_next("fsync_dir", errno.EMFILE, after=1)
    with pytest.raises(KafkaError):
        log.apply_retention(NOW)
    log.truncate_fully_and_start_at(Offset(0))
    append(log, batch(b"x", transactional=True, producer=(7, 0, 0)), from_client=False)
    append(log, marker(7, committed=False), from_client=False)
    log.roll(NOW)
    log.apply_retention(NOW)
    log.close()
    again = open_log(disk, SETTINGS, clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (0, 2)
    assert len(again.aborted_transactions(Offset(0), Offset(2))) == 1


def ends_of_first_segment(disk: SimDisk) -> set[str]:
    return {name[name.rindex(".") :] for name in disk.listdir(PATH) if name.startswith("0" * 20)}


def test_indexes_that_a_start_could_not_write_are_written_before_they_are_trusted() -> None:
    disk = new_disk()
    log = open_log(disk, SETTINGS)
    append(log, batch(b"x", transactional=True, producer=(7, 0, 0)), from_client=False)
    append(log, marker(7, committed=False), from_client=False)
    for value in (b"y", b"z"):
        log.roll(NOW)
        append(log, batch(value))
    disk.crash(power_cut=False)
    disk.unlink(f"{PATH}/{0:020d}.txnindex")
    disk.capacity_bytes = disk.used_bytes()
    log = open_log(disk, SETTINGS)
    disk.heal()
    plan = log.plan_sync(NOW)
    assert plan is not None
    plan.run(disk)
    log.sync_ended(plan, None)
    recovery_point = log.recovery_point
    assert recovery_point == 3
    disk.crash(power_cut=True)
    again = open_log(disk, SETTINGS, recovery_point=recovery_point)
    assert len(again.aborted_transactions(Offset(0), Offset(2))) == 1


@pytest.mark.parametrize("trouble", ["read-only", "full", "files"])
def test_missing_indexes_do_not_prevent_reads(trouble: str) -> None:
    disk = new_disk()
    filled(disk).close()
    log = open_log(disk, SETTINGS, clean=True)
    for name in disk.listdir(PATH):
        if name.endswith((".index", ".timeindex")):
            disk.unlink(f"{PATH}/{name}")
    if trouble == "read-only":
        disk.read_only = True
    elif trouble == "full":
        disk.capacity_bytes = disk.used_bytes()
    else:
        disk.fail_next("open", errno.EMFILE)
    read_everything(log, disk)
    look_up(log, disk)


def test_a_read_only_disk_can_be_read() -> None:
    disk = new_disk()
    log = reopened(disk)
    disk.read_only = True
    look_up(log, disk)
    read_everything(log, disk)
    assert log.offline_reason is None


def test_an_unflushed_record_is_not_a_recognised_duplicate() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(flush_messages=1))
    record_set = batch(b"x", producer=(7, 0, 0))
    disk.fail_next("open", errno.EMFILE)
    with pytest.raises(KafkaError):
        append(log, record_set)
    assert log.recovery_point == 0
    assert append(log, record_set).duplicate
    assert log.recovery_point == 1


def test_a_failed_fsync_of_data_is_not_transient() -> None:
    disk = new_disk()
    log = filled(disk)
    disk.fail_next("fsync", errno.ENOSPC, after=1)  # of the epochs, then of the data
    with pytest.raises(KafkaError):
        log.flush()
    assert log.offline_reason is not None
