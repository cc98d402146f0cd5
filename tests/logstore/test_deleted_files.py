"""Files that another process deletes, moves or truncates take their log offline, and a lost directory all its logs."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.disk import Disk, RealDisk
from raylog.logstore.log_dir import CHECKED_LOGS_MAX, LogDir
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import NOW, append, batch
from tests.logstore.test_power_cuts import ROOT, TOPIC_ID, open_dir
from tests.support.sim_disk import SimDisk

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SEGMENTS = 3


def filled(disk: Disk, root: str) -> LogDir:
    """Two logs of three segments."""
    log_dir = open_dir(disk, NOW, path=root)
    for tp in (T0, T1):
        log = log_dir.create_log(tp, TOPIC_ID, NOW)
        for _ in range(SEGMENTS):
            append(log, batch(b"x" * 50))
            log.roll(NOW)
        append(log, batch(b"x" * 50))
    log_dir.check_files()
    assert offline(log_dir) == {}
    return log_dir


def offline(log_dir: LogDir) -> dict[TopicPartition, str]:
    return {tp: log.offline_reason for tp, log in log_dir.logs.items() if log.offline_reason is not None}


def truncated(path: Path) -> None:
    os.truncate(path, 10)


def extended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def replaced(path: Path) -> None:
    shutil.copytree(path, f"{path}-copy")
    shutil.rmtree(path)
    Path(f"{path}-copy").rename(path)


def moved(path: Path) -> None:
    path.rename(f"{path}-away")


@pytest.mark.parametrize(
    ("name", "act", "why"),
    [
        ("t-0", shutil.rmtree, "No such file"),
        ("t-0", moved, "No such file"),
        ("t-0", replaced, "was replaced"),
        (f"t-0/{SEGMENTS:020d}.log", os.unlink, "No such file"),
        (f"t-0/{SEGMENTS:020d}.log", truncated, "has 10 bytes instead of"),
        (f"t-0/{SEGMENTS:020d}.log", extended, "bytes instead of"),
        (f"t-0/{0:020d}.log", os.unlink, "No such file"),
        (f"t-0/{1:020d}.log", truncated, "has 10 bytes instead of"),
    ],
    ids=["deleted", "moved", "replaced", "active", "active cut", "active extended", "first segment", "second cut"],
)
def test_a_log_goes_offline(tmp_path: Path, name: str, act: Callable[[Path], None], why: str) -> None:
    root = tmp_path / "broker"
    log_dir = filled(RealDisk(), str(root))
    act(root / name)
    for _ in range(SEGMENTS + 1):
        log_dir.check_files()
    ((tp, reason),) = offline(log_dir).items()
    assert (tp, log_dir.offline_reason) == (T0, None)
    assert why in reason
    with pytest.raises(KafkaError) as caught:
        append(log_dir.logs[T0], batch(b"lost"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(log_dir.logs[T1], batch(b"not affected"))
    log_dir.abandon()


@pytest.mark.parametrize("harm", [truncated, extended])
def test_the_next_append_notices_it_and_leaves_no_hole(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """The append would give the file its right size again, so that no check finds the zeros in it."""
    root = tmp_path / "broker"
    log_dir = filled(RealDisk(), str(root))
    path = root / f"t-0/{SEGMENTS:020d}.log"
    harm(path)
    damaged = path.read_bytes()
    with pytest.raises(KafkaError) as caught:
        append(log_dir.logs[T0], batch(b"x" * 50))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(offline(log_dir)) == [T0]
    assert path.read_bytes() == damaged
    log_dir.abandon()


@pytest.mark.parametrize("act", [shutil.rmtree, moved, replaced])
def test_a_lost_directory_takes_all_logs_offline_and_can_be_closed(tmp_path: Path, act: Callable[[Path], None]) -> None:
    root = tmp_path / "broker"
    log_dir = filled(RealDisk(), str(root))
    act(root)
    log_dir.check_files()
    assert log_dir.offline_reason is not None
    assert str(root) in log_dir.offline_reason
    assert offline(log_dir) == dict.fromkeys((T0, T1), log_dir.offline_reason)
    with pytest.raises(KafkaError) as caught:
        log_dir.write_checkpoints()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="is offline"):
        log_dir.create_log(TopicPartition("new", 0), TOPIC_ID, NOW)
    assert (log_dir.plan_checkpoints(), log_dir.plan_deletion(NOW)) == ([], None)
    there = sorted(root.rglob("*"))
    with suppress(KafkaError):
        log_dir.delete_log(T1, NOW)
    log_dir.check_files()
    log_dir.close()
    assert sorted(root.rglob("*")) == there, "what is there now may belong to somebody else"


def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline_but_a_full_disk_does_not() -> None:
    disk = SimDisk(random.Random(1))
    log_dir = filled(disk, ROOT)
    for read_only in (False, True):
        append(log_dir.logs[T0], batch(b"x"))
        log_dir.logs[T0].flush()
        plan = log_dir.plan_recovery_points()
        assert plan is not None
        disk.read_only, disk.capacity_bytes = read_only, None if read_only else disk.used_bytes()
        failure = None
        try:
            plan.run()
        except OSError as error:
            failure = error
        assert not log_dir.checkpoint_ended(plan, failure)
        assert (log_dir.offline_reason is not None) is read_only
        disk.heal()
    assert "recovery-point-offset-checkpoint cannot be written" in str(log_dir.offline_reason)


def test_each_call_checks_a_bounded_number_of_logs_and_all_have_their_turn() -> None:
    disk = SimDisk(random.Random(1))
    log_dir = open_dir(disk, NOW)
    count = 2 * CHECKED_LOGS_MAX + 10
    for number in range(count):
        log_dir.create_log(TopicPartition("t", number), TOPIC_ID, NOW)
    disk.rmtree(f"{ROOT}/t-{count - 1}")
    calls = 0
    while not offline(log_dir):
        log_dir.check_files()
        calls += 1
    assert (calls, list(offline(log_dir))) == (3, [TopicPartition("t", count - 1)])


def test_what_a_log_does_itself_is_no_damage() -> None:
    disk = SimDisk(random.Random(1))
    log_dir = filled(disk, ROOT)
    log = log_dir.logs[T0]
    log.settings = LogSettings(retention_bytes=0, file_delete_delay_ms=0)
    steps: list[Callable[[], object]] = [
        lambda: log_dir.truncate_log(T0, Offset(2)),
        lambda: append(log, batch(b"y")),
        lambda: log.roll(NOW),
        lambda: log.apply_retention(NOW),
        lambda: log_dir.delete_retired(NOW),
        lambda: log_dir.begin_log_at(T0, Offset(100)),
        lambda: append(log, batch(b"z")),
        lambda: log_dir.delete_log(T1, NOW),
    ]
    for step in steps:
        step()
        for _ in range(5):
            log_dir.check_files()
        assert offline(log_dir) == {}
