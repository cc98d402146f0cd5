"""Recovery logs what it found and repaired, offline logs and damage: each once."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, Offset, TopicPartition
from raylog.logstore import log_dir as log_dir_module
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.recovery_threads import run_in_threads
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import EPOCH, NOW, PATH, append, batch, contents, marker, new_disk, open_log
from tests.support.sim_disk import SimDisk

SETTINGS = LogSettings(segment_bytes=300, index_interval_bytes=50)
SIZE = len(batch(b"x" * 50))
FIRST = f"{PATH}/{0:020d}"
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def is_standard(name: str) -> bool:
    return name in STANDARD or name.startswith("_ray_")  # of a Ray in this process


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[tuple[str, dict[str, Any]]]]]:
    """Gives the events since it was last asked: their words and fields."""
    caplog.set_level(logging.INFO, logger="raylog.logstore")

    def events() -> list[tuple[str, dict[str, Any]]]:
        found = [
            (record.message, {name: value for name, value in vars(record).items() if not is_standard(name)})
            for record in caplog.records
        ]
        caplog.clear()
        return found

    yield events
    assert all(record.name == "raylog.logstore" and not record.args for record in caplog.records)


Told = Callable[[], list[tuple[str, dict[str, Any]]]]


def written(disk: SimDisk, count: int = 8) -> Log:
    """Batches of one record and SIZE bytes, two in a segment."""
    log = open_log(disk, SETTINGS)
    for _ in range(count):
        append(log, batch(b"x" * 50))
    return log


def flip(disk: SimDisk, path: str, at: int) -> None:
    data = bytearray(disk.read_file(path))
    data[at] ^= 1
    disk.overwrite(path, bytes(data))


def test_a_healthy_log_has_no_events(told: Told) -> None:
    disk = new_disk()
    log = written(disk)
    log.flush()
    disk.crash(power_cut=False)
    log = open_log(disk, SETTINGS, recovery_point=3)
    contents(log)
    log.offset_for_timestamp(NOW, upto=Offset(8))
    log.close()
    log = open_log(disk, SETTINGS, clean=True)
    contents(log)
    log.offset_for_timestamp(NOW, upto=Offset(8))
    log.truncate_to(Offset(3))
    log.apply_retention(NOW)
    log.abandon()
    assert told() == []


def damage_checksum(disk: SimDisk) -> None:
    flip(disk, FIRST + ".log", 2 * SIZE - 1)


def damage_header(disk: SimDisk) -> None:
    flip(disk, FIRST + ".log", SIZE + 16)


def damage_end(disk: SimDisk) -> None:
    disk.overwrite(FIRST + ".log", disk.read_file(FIRST + ".log")[:-1])


def damage_header_end(disk: SimDisk) -> None:
    disk.overwrite(FIRST + ".log", disk.read_file(FIRST + ".log")[: SIZE + 20])


def damage_torn(disk: SimDisk) -> None:
    disk.overwrite(FIRST + ".log", disk.read_file(FIRST + ".log")[:SIZE] + bytes(SIZE))


def damage_offset(disk: SimDisk) -> None:
    data = bytearray(disk.read_file(FIRST + ".log"))
    data[SIZE + 7] = 0
    disk.overwrite(FIRST + ".log", bytes(data))


@pytest.mark.parametrize(
    ("damage", "why", "dropped_bytes"),
    [
        (damage_checksum, "bad checksum", 7 * SIZE),
        (damage_header, "not a batch", 7 * SIZE),
        (damage_end, "truncated", 7 * SIZE - 1),
        (damage_header_end, "truncated", 6 * SIZE + 20),
        (damage_torn, "zeros", 7 * SIZE),
        (damage_offset, "offsets go back", 7 * SIZE),
    ],
)
def test_a_truncation_is_logged_with_position_size_and_reason(
    damage: Callable[[SimDisk], None], why: str, dropped_bytes: int, told: Told
) -> None:
    disk = new_disk()
    written(disk).flush()
    disk.crash(power_cut=True)
    damage(disk)
    open_log(disk, SETTINGS)
    fields = {
        "path": FIRST + ".log",
        "position": SIZE,
        "next_offset": 1,
        "dropped_bytes": dropped_bytes,
        "dropped_segments": 3,
        "why": why,
    }
    assert told() == [("log truncated", fields)]


def test_a_truncation_in_the_last_segment_drops_no_other(told: Told) -> None:
    disk = new_disk()
    written(disk, 1)
    disk.crash(power_cut=False)
    flip(disk, FIRST + ".log", SIZE - 1)
    open_log(disk, SETTINGS)
    ((words, fields),) = told()
    assert words == "log truncated"
    assert (fields["position"], fields["dropped_bytes"], fields["dropped_segments"]) == (0, SIZE, 0)


def test_a_missing_segment_truncates_the_log_before_it(told: Told) -> None:
    disk = new_disk()
    written(disk).flush()
    disk.crash(power_cut=False)
    disk.unlink(f"{PATH}/{2:020d}.log")
    open_log(disk, SETTINGS)
    ((words, fields),) = told()
    assert (words, fields["why"]) == ("log truncated", "gap before the next segment")
    assert (fields["path"], fields["position"], fields["next_offset"]) == (FIRST + ".log", 2 * SIZE, 2)
    assert (fields["dropped_bytes"], fields["dropped_segments"]) == (4 * SIZE, 2)


def test_rebuilt_files_are_logged_if_they_were_wrong(told: Told) -> None:
    disk = new_disk()
    log = open_log(disk, SETTINGS)
    append(log, batch(b"x", transactional=True, producer=(7, 0, 0)), from_client=False)
    append(log, marker(7, committed=False), from_client=False)
    for _ in range(6):
        append(log, batch(b"x" * 50))
    log.close()
    wrong: dict[str, list[str]] = {".index": [], ".txnindex": [], "leader-epoch-checkpoint": []}
    for name in disk.listdir(PATH):
        for end, paths in wrong.items():
            if name.endswith(end):
                paths.append(f"{PATH}/{name}")
                disk.overwrite(f"{PATH}/{name}", b"\0\1\2" + disk.read_file(f"{PATH}/{name}")[3:-1])
    log = open_log(disk, SETTINGS, clean=True)
    found = told()
    assert ("leader epochs rebuilt", {"path": f"{PATH}/leader-epoch-checkpoint", "why": "malformed"}) in found
    assert {fields["path"] for words, fields in found if words == "transaction index rebuilt"} == {*wrong[".txnindex"]}
    assert "does not fit the log" in [fields["why"] for words, fields in found if words == "index rebuilt"]
    contents(log)
    log.truncate_to(Offset(6))
    seen = [(words, fields["path"]) for words, fields in [*found, *told()]]
    assert len(seen) == len(set(seen))
    assert ("index rebuilt", FIRST + ".log") in seen
    contents(log)
    assert told() == []


def test_a_malformed_snapshot_is_named(told: Told) -> None:
    disk = new_disk()
    written(disk).close()
    newest = f"{PATH}/{8:020d}.snapshot"
    disk.overwrite(newest, disk.read_file(newest)[:-1])
    open_log(disk, SETTINGS, clean=True)
    assert told() == [("producer snapshot malformed", {"path": newest})]


def test_a_crash_that_lost_deleted_records_is_logged(told: Told) -> None:
    disk = new_disk()
    written(disk, 1)
    disk.crash(power_cut=False)
    open_log(disk, SETTINGS, log_start_offset=5)
    fields = {"path": PATH, "log_end_offset": 1, "log_start_offset": 5}
    assert told()[1:] == [("log restarted at its start offset", fields)]


def test_missing_epochs_are_logged_only_if_they_were_lost(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    written(disk, 1)
    disk.crash(power_cut=False)
    log = open_log(disk, SETTINGS)
    assert [(record.message, record.levelno) for record in caplog.records] == [("leader epochs rebuilt", logging.INFO)]
    log.close()
    disk.unlink(f"{PATH}/leader-epoch-checkpoint")
    told()
    open_log(disk, SETTINGS, clean=True)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert told() == [("leader epochs rebuilt", {"path": f"{PATH}/leader-epoch-checkpoint", "why": "missing"})]


def test_an_offline_log_is_logged_once_with_the_reason(told: Told) -> None:
    disk = new_disk()
    log = written(disk, 1)
    disk.fail_next("fsync", errno.EIO, after=1)
    for _ in range(3):
        with pytest.raises(KafkaError):
            log.flush()
    log.take_offline("something else")
    log.abandon()
    ((words, fields),) = told()
    assert (words, fields["topic_partition"], fields["path"]) == ("log offline", "topic-0", PATH)
    assert fields["reason"].startswith("flush failed: ")


def test_a_full_disk_is_logged_once_until_there_is_space_again(told: Told) -> None:
    disk = new_disk()
    log = written(disk, 1)
    for _ in range(2):
        disk.capacity_bytes = disk.used_bytes()
        for _ in range(3):
            with pytest.raises(KafkaError):
                append(log, batch(b"x"))
        ((event, fields),) = told()
        assert (event, fields["topic_partition"]) == ("disk full, writes refused", "topic-0")
        disk.capacity_bytes = None
        append(log, batch(b"x"))


def test_a_damaged_batch_is_logged_once_per_position(told: Told) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings())
    for _ in range(30):
        append(log, batch(b"x" * 50))
    log.close()
    for number in range(3, 30):
        flip(disk, FIRST + ".log", (number + 1) * SIZE - 1)
    log = open_log(disk, LogSettings(), clean=True)
    for start in (0, 3, 2, 3, 0):
        if start < 3:
            assert log.read(Offset(start), max_bytes=1 << 20, upto=Offset(30)).next_offset == 3
            continue
        with pytest.raises(KafkaError) as caught:
            log.read(Offset(start), max_bytes=1 << 20, upto=Offset(30))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    fields = {"path": FIRST + ".log", "position": 3 * SIZE, "why": "the batch fails its checksum"}
    assert told() == [("stored batch damaged", fields)]
    for start in range(4, 30):
        with suppress(KafkaError):
            log.read(Offset(start), max_bytes=1 << 20, upto=Offset(30))
    assert 1 < len(told()) < 20


# --- a directory


def open_dir(disk: SimDisk, *, threads: int = 1) -> LogDir:
    return LogDir.open(
        disk,
        "/broker",
        cluster_id="c",
        broker_id=BrokerId(0),
        settings_for=lambda _: LogSettings(),
        now_ms=NOW,
        new_id=lambda: UUID(int=1),
        run_all=lambda jobs: run_in_threads(threads, jobs),
    )


@pytest.mark.parametrize("threads", [1, 4])
def test_an_unclean_start_logs_its_progress(threads: int, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_module, "PROGRESS_LOGS", 3)
    disk = new_disk()
    log_dir = open_dir(disk)
    for number in range(7):
        log_dir.create_log(TopicPartition("t", number), UUID(int=5), NOW)
    assert told() == []
    disk.crash(power_cut=False)
    log_dir = open_dir(disk, threads=threads)
    all_of_them = {"path": "/broker", "logs": 7}
    assert told() == [
        ("recovery started", all_of_them),
        ("recovery progressed", {**all_of_them, "recovered": 3}),
        ("recovery progressed", {**all_of_them, "recovered": 6}),
        ("recovery completed", all_of_them),
    ]
    log_dir.close()
    log_dir = open_dir(disk, threads=threads)
    assert told() == []


def test_a_malformed_checkpoint_causes_an_unclean_start_and_is_named(told: Told) -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    append(log_dir.create_log(TopicPartition("t", 0), UUID(int=5), NOW), batch(b"x"), epoch=EPOCH)
    log_dir.close()
    disk.overwrite("/broker/recovery-point-offset-checkpoint", b"nonsense")
    open_dir(disk)
    assert [words for words, _ in told()] == ["checkpoint malformed", "recovery started", "recovery completed"]


def test_a_segment_of_one_large_batch_needs_no_index_entries(told: Told) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=30_000))
    for _ in range(3):
        append(log, batch(b"x" * 20_000))
    log.close()
    told()
    log = open_log(disk, clean=True)
    assert log.segment_count == 3
    assert log.read(Offset(1), max_bytes=1, upto=log.log_end_offset).next_offset == 2
    assert log.offset_of_max_timestamp(upto=log.log_end_offset) is not None
    assert told() == []
