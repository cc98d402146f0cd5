"""Cleanings in child processes: their results, their errors, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset
from raylog.logstore.cleaner import CleanedLog, CleanedSegment, CleanerBuffers, CleaningPlan
from raylog.logstore.cleaner_process import NICENESS, CleanerProcesses, Pace, drop_from_page_cache
from raylog.logstore.disk import RealDisk
from raylog.logstore.log import Log
from tests.logstore.batches import NOW, TP
from tests.logstore.test_cleaning import BUFFERS, SECRET, SETTINGS, put, records_in, take_steps

SLOW = CleanerBuffers(dedupe_bytes=1 << 20, io_bytes=4096, load_factor=0.9, io_bytes_per_second=1000)
WAIT_SECONDS = 30.0
NICENESS_MAX = 19


def log_at(path: Path) -> Log:
    log = Log.open(RealDisk(), str(path / "topic-0"), TP, SETTINGS, now_ms=NOW, recovery_point=Offset(0), clean=False)
    for number in range(60):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    log.flush()
    return log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return log_at(tmp_path)


def plan_of(log: Log) -> CleaningPlan:
    found = log.cleanable(limit=log.log_end_offset, now_ms=NOW)
    assert found is not None
    return log.plan_cleaning(found, now_ms=NOW, secret=SECRET)


def swap_in(log: Log, plan: CleaningPlan, cleaned: CleanedLog) -> None:
    assert log.begin_swaps(plan, cleaned)
    take_steps(log)


def test_a_child_cleans_and_is_used_again(log: Log) -> None:
    processes = CleanerProcesses()
    try:
        plan = plan_of(log)
        swap_in(log, plan, processes.run(plan, BUFFERS))
        assert len(records_in(log)) < 10
        [child] = processes._idle
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == min(own + NICENESS, NICENESS_MAX)
        put(log, (b"k0", b"last"))
        log.roll(NOW)
        log.flush()
        plan = plan_of(log)
        swap_in(log, plan, processes.run(plan, BUFFERS))
        assert processes._idle == [child]
        assert [record.value for record in records_in(log) if record.key == b"k0"] == [b"last"]
    finally:
        processes.abort()
    log.close()


def test_replaced_segments_are_not_in_the_page_cache(tmp_path: Path) -> None:
    """One of a few cleanings is enough: the kernel may keep a page that something else holds."""
    if resident_after_dropping(tmp_path / "other"):
        pytest.skip("this file system keeps its pages in memory")
    assert any(replaced_segments_are_dropped(tmp_path / str(number)) for number in range(5))


def replaced_segments_are_dropped(path: Path) -> bool:
    path.mkdir()
    log = log_at(path)
    plan = plan_of(log)
    paths = [Path(log.path, f"{segment.base_offset:020d}.log") for segment in plan.segments]
    assert all(is_resident(path) for path in paths)
    processes = CleanerProcesses()
    try:
        cleaned = processes.run(plan, BUFFERS)
    finally:
        processes.abort()
    replaced = {base_offset for segment in cleaned.segments for base_offset in segment.replaces}
    assert replaced
    kept = [path for path in paths if int(path.stem) in replaced and is_resident(path)]
    assert records_in(log)
    log.close()
    return not kept


def test_a_segment_that_was_deleted_meanwhile_does_not_end_a_cleaning(log: Log) -> None:
    plan = plan_of(log)
    cleaned = CleanedLog((CleanedSegment((0, 12_345), Offset(20_000)),), 20_000, 0, 0)
    drop_from_page_cache(plan.directory, cleaned)
    log.close()


def resident_after_dropping(path: Path) -> bool:
    path.write_bytes(b"x" * 10_000)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return is_resident(path)


def is_resident(path: Path) -> bool:
    disk = RealDisk()
    handle = disk.open(str(path), writable=False)
    try:
        return disk.is_resident(handle, disk.size(handle), 0)
    finally:
        disk.close(handle)


def test_its_error_is_raised_here(log: Log) -> None:
    Path(log.path, "00000000000000000000.log").write_bytes(b"X" * 500)
    processes = CleanerProcesses()
    try:
        with pytest.raises(KafkaError) as caught:
            processes.run(plan_of(log), BUFFERS)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert "00000000000000000000.log: at position 0" in caught.value.message
    finally:
        processes.abort()
    log.abandon()


def test_a_killed_child_is_replaced(log: Log) -> None:
    processes = CleanerProcesses()
    errors: list[OSError] = []

    def run() -> None:
        try:
            processes.run(plan_of(log), SLOW)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    try:
        thread.start()
        end = time.monotonic() + WAIT_SECONDS
        while not processes._busy and time.monotonic() < end:
            time.sleep(0.01)
        [child] = processes._busy
        child.kill()
        thread.join(WAIT_SECONDS)
        assert "the cleaner process has ended with -9" in str(errors[0])
        plan = plan_of(log)
        swap_in(log, plan, processes.run(plan, BUFFERS))
    finally:
        processes.abort()
        thread.join(WAIT_SECONDS)
    log.close()


def test_abort_ends_a_cleaning_and_all_children(log: Log) -> None:
    processes = CleanerProcesses()
    failed = threading.Event()

    def run() -> None:
        try:
            processes.run(plan_of(log), SLOW)
        except OSError:
            failed.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not processes._busy:
        time.sleep(0.01)
    [child] = processes._busy
    processes.abort()
    assert failed.wait(WAIT_SECONDS)
    thread.join(WAIT_SECONDS)
    assert child.returncode == -signal.SIGKILL
    with pytest.raises(OSError, match="aborted"):
        processes.run(plan_of(log), BUFFERS)
    log.close()


def test_a_child_ends_with_its_parent_in_the_middle_of_a_cleaning(tmp_path: Path) -> None:
    """The parent is killed without a word."""
    program = f"""
import sys, threading
from pathlib import Path
from tests.logstore import test_cleaner_process as here
log = here.log_at(Path({str(tmp_path)!r}))
processes = here.CleanerProcesses()
threading.Thread(target=processes.run, args=(here.plan_of(log), here.SLOW), daemon=True).start()
while not processes._busy:
    pass
print([child.pid for child in processes._busy][0], flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + WAIT_SECONDS
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # it waits for init
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}").exists()


def test_the_pace_is_kept() -> None:
    pace = Pace(bytes_per_second=100_000)
    start = time.monotonic()
    for _ in range(20):
        pace(1000)
    assert time.monotonic() - start >= 0.15
