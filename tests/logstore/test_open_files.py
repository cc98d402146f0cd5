"""However many segments there are, few of their files are open, and all of them can be used."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.disk import Disk, RealDisk
from raylog.logstore.future_log import FutureLog
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.open_files import OPEN_FILES_MIN
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import EPOCH, NOW, PATH, append, batch, contents, new_disk, numbered, open_log
from tests.support.descriptors import open_within
from tests.support.sim_disk import SEGMENT_FILES_MAX

SMALL = LogSettings(segment_bytes=150, file_delete_delay_ms=0)
"""One batch for each segment."""
LOCK_AND_TRANSIENT = 3


def test_a_thousand_segments_of_many_logs(tmp_path: Path) -> None:
    disk = RealDisk(OPEN_FILES_MIN)
    rng = random.Random(3)
    logs = [open_on(disk, tmp_path / f"t-{number}") for number in range(20)]
    written: list[list[bytes]] = [[] for _ in logs]
    for count in range(1000):
        at = rng.randrange(len(logs))
        value = b"%d" % count * 20
        append(logs[at], batch(value))
        written[at].append(value)
    assert sum(log.segment_count for log in logs) > 900
    for at in rng.sample(range(len(logs)), len(logs)):
        assert contents(logs[at], max_bytes=100) == numbered(written[at])
        assert open_within(tmp_path) <= OPEN_FILES_MIN + LOCK_AND_TRANSIENT
        assert len(disk.segment_files) <= OPEN_FILES_MIN
    for log in logs:
        log.truncate_to(Offset(3))
        log.close()
    assert open_within(tmp_path) == 0
    logs = [open_on(disk, tmp_path / f"t-{number}", clean=True) for number in range(20)]
    assert open_within(tmp_path) == 0, "a file is opened when it is used"
    for at, log in enumerate(logs):
        assert contents(log) == numbered(written[at][:3])
        log.close()


def open_on(disk: RealDisk, path: Path, *, clean: bool = False) -> Log:
    return Log.open(disk, str(path), TopicPartition("t", 0), SMALL, now_ms=NOW, recovery_point=Offset(0), clean=clean)


def test_an_append_that_cannot_open_its_file_is_retried() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, batch(b"a"))
    others = [open_other(disk, number) for number in range(SEGMENT_FILES_MAX + 1)]
    disk.no_more_files = True
    with pytest.raises(KafkaError, match="Too many open files") as caught:
        append(log, batch(b"b"))
    assert (caught.value.code, log.offline_reason) == (ErrorCode.KAFKA_STORAGE_ERROR, None)
    disk.heal()
    append(log, batch(b"b"))
    assert contents(log) == numbered([b"a", b"b"])
    assert all(other.offline_reason is None for other in others)


def open_other(disk: Disk, number: int) -> Log:
    path = f"/data/other-{number}"
    log = Log.open(
        disk,
        path,
        TopicPartition("other", number),
        LogSettings(),
        now_ms=NOW,
        recovery_point=Offset(0),
        clean=False,
    )
    append(log, batch(b"x"))
    return log


def test_jobs_that_copy_a_log_have_open_files_of_their_own(tmp_path: Path) -> None:
    """The loop could close a file that a job is writing to, and the job one that the loop is reading from."""
    disk = RealDisk(OPEN_FILES_MIN)
    current = open_on(disk, tmp_path / "t-0")
    for number in range(2 * OPEN_FILES_MIN):
        append(current, batch(b"%d" % number * 20))
    (tmp_path / "target").mkdir()
    target = LogDir.open(
        disk,
        str(tmp_path / "target"),
        cluster_id="c",
        broker_id=BrokerId(1),
        settings_for=lambda _: SMALL,
        now_ms=NOW,
        new_id=uuid4,
    )
    future = FutureLog(disk, target, current, uuid4())
    future.create()
    while not future.is_closed:
        plan = future.plan(now_ms=NOW, close=future.is_caught_up)
        before = list(disk.segment_files._open)
        plan.run()
        assert list(disk.segment_files._open) == before
        assert open_within(Path(future.path)) == 0
        future.ended(plan)
        assert plan.failure is None
    moved = open_on(disk, Path(future.path), clean=True)
    assert contents(moved) == contents(current)
    for log in (moved, current):
        log.close()
    target.close()


def test_another_file_in_its_place_is_not_used(tmp_path: Path) -> None:
    disk = RealDisk(OPEN_FILES_MIN)
    log = open_on(disk, tmp_path / "t-0")
    for _ in range(OPEN_FILES_MIN + 5):
        append(log, batch(b"x" * 30))
    first = tmp_path / "t-0" / f"{0:020d}.log"
    shutil.copy(first, tmp_path / "copy")
    os.replace(tmp_path / "copy", first)
    with pytest.raises(KafkaError, match="the file was replaced"):
        log.read(Offset(0), max_bytes=1000, upto=log.log_end_offset)
    log.abandon()


def test_unsynced_files_may_be_closed() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, batch(b"a"))
    for number in range(SEGMENT_FILES_MAX + 1):
        open_other(disk, number)
    log.flush()
    disk.crash(power_cut=True)
    assert contents(open_log(disk, recovery_point=1)) == [(0, b"a")]


def test_a_replaced_file_of_a_truncation_is_open_afterwards() -> None:
    disk = new_disk()
    log = open_log(disk)
    for number in range(4):
        append(log, batch(b"%d" % number))
    log.publish(Offset(4))
    log.truncate_to(Offset(2))
    log.append_as_leader(memoryview(batch(b"new")), leader_epoch=LeaderEpoch(EPOCH + 1), now_ms=NOW)
    assert contents(log) == numbered([b"0", b"1", b"new"])
    assert disk.exists(f"{PATH}/{0:020d}.log")
    log.check_files()
    assert log.offline_reason is None
