"""Recovery in several threads gives the same logs and errors as in one."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, TopicPartition
from raylog.logstore.log_dir import Jobs, LogDir, run_in_order
from raylog.logstore.recovery_threads import run_in_threads
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import NOW, append, batch, contents, numbered
from tests.logstore.local import QuickDisk
from tests.support.descriptors import open_within

PARTITIONS = 20


def open_dir(path: Path, run_all: object = run_in_order) -> LogDir:
    return LogDir.open(
        QuickDisk(),
        str(path),
        cluster_id="c",
        broker_id=BrokerId(0),
        settings_for=lambda _: LogSettings(),
        now_ms=NOW,
        new_id=uuid4,
        run_all=run_all,  # type: ignore[arg-type]
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Logs of different lengths, left behind without a clean stop."""
    log_dir = open_dir(tmp_path)
    for number in range(PARTITIONS):
        log = log_dir.create_log(TopicPartition("t", number), uuid4(), NOW)
        for _ in range(number):
            append(log, batch(b"%d" % number))
    log_dir.abandon()
    return tmp_path


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_all_logs_are_opened_in_order(directory: Path, threads: int) -> None:
    log_dir = open_dir(directory, partial(run_in_threads, threads))
    assert list(log_dir.logs) == sorted(log_dir.logs)
    for number in range(PARTITIONS):
        log = log_dir.logs[TopicPartition("t", number)]
        assert contents(log) == numbered([b"%d" % number] * number)
        assert log.topic_id.int
    log_dir.abandon()


def test_a_log_that_cannot_be_opened_fails_the_directory_and_holds_no_files(directory: Path) -> None:
    (directory / "t-11" / "00000000000000000000.log").rename(directory / "t-11" / "moved")
    (directory / "t-11" / "00000000000000000000.log").mkdir()
    before = open_within(directory)
    with pytest.raises(KafkaError, match="t-11") as caught:
        open_dir(directory, partial(run_in_threads, 3))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert open_within(directory) == before


def test_the_number_of_threads_is_limited() -> None:
    both_run = threading.Barrier(2)
    names: set[str] = set()

    def job() -> None:
        both_run.wait(20)
        names.add(threading.current_thread().name)

    jobs: Jobs = [job] * 6
    run_in_threads(2, jobs)
    assert len(names) == 2
