"""After any kind of stop a log has all flushed records, in order, and no corrupt ones."""

from __future__ import annotations

import errno
import random

import pytest

from raylog.core.errors import KafkaError
from raylog.core.ids import Offset
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.batch import HEADER_SIZE, parse_header, patch_offset_and_epoch
from tests.logstore.batches import NOW, PATH, append, batch, contents, new_disk, numbered, open_log
from tests.support.sim_disk import Killed, SimDisk

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
RECORD_HEAD = 6
"""Bytes of these records before their value."""
ONE = f"{PATH}/{0:020d}"


def filled(disk: SimDisk, count: int = 12, settings: LogSettings = SMALL, *, close: bool = False) -> list[bytes]:
    log = open_log(disk, settings)
    values = [b"%d" % number * 20 for number in range(count)]
    for number, value in enumerate(values):
        append(log, batch(value, timestamp_ms=NOW + number), epoch=number // 3)
    log.close() if close else log.flush()
    return values


def test_after_a_clean_stop_no_data_is_scanned() -> None:
    disk = new_disk()
    values = filled(disk, close=True)
    log = open_log(disk, SMALL, clean=True)
    assert contents(log) == numbered(values)
    assert log.recovery_point == 12
    assert log.leader_epochs.entries == [(0, 0), (1, 3), (2, 6), (3, 9)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "damage", ["missing", "empty", "garbage", "zeros", "half an entry", "entries of another log", "epochs"]
)
def test_missing_and_wrong_indexes_and_epochs_are_rebuilt(damage: str, clean: bool) -> None:
    disk = new_disk()
    values = filled(disk, close=True)
    for name in disk.listdir(PATH):
        path = f"{PATH}/{name}"
        if name.endswith((".index", ".timeindex")):
            size = 8 if name.endswith(".index") else 12
            if damage == "missing":
                disk.unlink(path)
            elif damage != "epochs":
                disk.overwrite(
                    path,
                    {
                        "empty": b"",
                        "garbage": random.Random(1).randbytes(size * 5),
                        "zeros": bytes(size * 100),
                        "half an entry": disk.read_file(path) + b"\0" * (size // 2),
                        "entries of another log": b"".join(
                            (n).to_bytes(size - 4) + (n * 97).to_bytes(4) for n in range(1, 4)
                        ),
                    }[damage],
                )
        elif name == "leader-epoch-checkpoint" and damage in ("missing", "epochs", "garbage"):
            disk.overwrite(path, b"0\n7\n1 1\n") if damage == "epochs" else disk.unlink(path)
    log = open_log(disk, SMALL, clean=clean, recovery_point=12)
    for start in range(13):
        piece = log.read(Offset(start), max_bytes=1, upto=Offset(12))
        assert piece.next_offset == min(start + 1, 12)
    assert contents(log) == numbered(values)
    assert log.leader_epochs.entries == [(0, 0), (1, 3), (2, 6), (3, 9)]
    if damage not in ("empty", "entries of another log"):  # those pass for a true time index
        assert [log.offset_for_timestamp(NOW + n, upto=Offset(12)) for n in range(12)] == [
            (n, NOW + n, n // 3) for n in range(12)
        ]


def test_an_index_entry_beyond_the_log_hides_no_record() -> None:
    disk = new_disk()
    settings = LogSettings(index_interval_bytes=100)
    values = filled(disk, settings=settings, close=True)
    log = open_log(disk, settings, clean=True)
    log.roll(NOW)
    log.close()
    far = len(batch(values[0])) * 6
    disk.overwrite(f"{ONE}.index", (1).to_bytes(4) + far.to_bytes(4))
    log = open_log(disk, settings, clean=True)
    assert log.read(Offset(1), max_bytes=1, upto=Offset(12)).next_offset == 2
    assert contents(log) == numbered(values)


@pytest.mark.parametrize("entries", [0, 1])
def test_indexes_of_a_segment_closed_after_the_last_flush_are_not_trusted(entries: int) -> None:
    disk = new_disk()
    values = filled(disk, 3, LogSettings(index_interval_bytes=50))
    log = open_log(disk, LogSettings(index_interval_bytes=50), recovery_point=3)
    log.flush()
    log.roll(NOW)
    for suffix, size in ((".index", 8), (".timeindex", 12)):  # a power cut leaves a part of each
        disk.overwrite(ONE + suffix, disk.read_file(ONE + suffix)[: entries * size])
    disk.crash(power_cut=False)
    log = open_log(disk, recovery_point=3)
    assert [log.offset_for_timestamp(NOW + n, upto=Offset(3)) for n in range(3)] == [(n, NOW + n, 0) for n in range(3)]
    assert contents(log) == numbered(values)


@pytest.mark.parametrize("seed", range(20))
def test_a_rebuilt_index_is_complete_or_missing_after_a_power_failure(seed: int) -> None:
    disk = new_disk(seed)
    filled(disk, close=True)
    disk.unlink(f"{ONE}.timeindex")
    log = open_log(disk, SMALL, clean=True)
    log.offset_for_timestamp(NOW + 3, upto=Offset(12))
    disk.crash(power_cut=True)
    log = open_log(disk, SMALL, recovery_point=12)
    assert [log.offset_for_timestamp(NOW + n, upto=Offset(12)) for n in range(12)] == [
        (n, NOW + n, n // 3) for n in range(12)
    ]


def test_unsynced_records_of_a_killed_process_are_flushed_as_configured() -> None:
    disk = new_disk()
    append(open_log(disk, LogSettings(flush_ms=100)), batch(b"a"))
    disk.crash(power_cut=False)
    log = open_log(disk, LogSettings(flush_ms=100), now_ms=NOW + 7)
    assert log.plan_sync(NOW + 106) is None
    plan = log.plan_sync(NOW + 107)
    assert plan is not None
    assert plan.upto == 1


@pytest.mark.parametrize("seed", range(20))
def test_with_flush_messages_a_record_that_was_read_survives(seed: int) -> None:
    disk = new_disk(seed)
    append(open_log(disk), batch(b"a"))
    disk.crash(power_cut=False)
    log = open_log(disk, LogSettings(flush_messages=1))
    assert (contents(log), log.recovery_point) == ([(0, b"a")], 1)
    disk.crash(power_cut=True)
    assert contents(open_log(disk, recovery_point=1)) == [(0, b"a")]


def test_a_log_that_cannot_be_opened_holds_no_open_file() -> None:
    for op in ("size", "read_file", "pread", "listdir"):
        disk = new_disk()
        filled(disk)
        disk.crash(power_cut=False)
        for attempts in range(2):
            disk.fail_next(op, errno.EIO, after=attempts)
            with pytest.raises(KafkaError):
                open_log(disk, SMALL, recovery_point=6)
            assert disk.open_files() == 0
            disk.crash(power_cut=False)


def test_an_incomplete_batch_at_the_end_is_truncated() -> None:
    whole = bytes(batch(b"next"))
    for size in range(1, len(whole)):
        for tail in (whole[:size], bytes(size)):
            disk = new_disk()
            log = open_log(disk)
            append(log, batch(b"first"))
            log.flush()
            disk.overwrite(f"{ONE}.log", disk.read_file(f"{ONE}.log") + tail)
            disk.crash(power_cut=False)
            log = open_log(disk, recovery_point=1)
            assert contents(log) == [(0, b"first")]
            assert append(log, batch(b"second")).first_offset == 1
            assert contents(log) == [(0, b"first"), (1, b"second")]


def test_a_gap_left_by_compaction_at_the_end_of_a_segment_is_accepted() -> None:
    """Kafka's cleaner removes whole batches. Where nothing says that it was here, a gap is a crash."""
    disk = new_disk()
    values = filled(disk)
    bases = [int(name[:20]) for name in disk.listdir(PATH) if name.endswith(".log")]
    assert bases[:3] == [0, 4, 8]
    first = disk.read_file(f"{ONE}.log")
    disk.overwrite(f"{ONE}.log", first[: first.index(values[1]) - HEADER_SIZE - RECORD_HEAD])
    disk.crash(power_cut=False)
    log = open_log(disk, SMALL, cleaned_upto=bases[-1])
    assert contents(log) == [(0, values[0]), *numbered(values[4:], 4)]
    disk.crash(power_cut=False)
    assert contents(open_log(disk, SMALL)) == [(0, values[0])], "the tail of a segment was lost, and more behind it"


def test_recovery_truncates_at_a_flipped_bit_and_drops_later_segments() -> None:
    disk = new_disk()
    values = filled(disk)
    path = f"{PATH}/{8:020d}.log"
    data = bytearray(disk.read_file(path))
    size = len(batch(values[8]))
    data[size * 1 + 70] ^= 4
    disk.overwrite(path, bytes(data))
    disk.crash(power_cut=False)
    log = open_log(disk, SMALL, recovery_point=4)
    assert contents(log) == numbered(values[:9])
    assert append(log, batch(b"new"), epoch=9).first_offset == 9


def test_recovery_truncates_at_decreasing_offsets_and_missing_segments() -> None:
    disk = new_disk()
    values = filled(disk)
    data = disk.read_file(f"{PATH}/{8:020d}.log")
    disk.overwrite(f"{PATH}/{8:020d}.log", data + data)
    disk.crash(power_cut=False)
    assert contents(open_log(disk, SMALL)) == numbered(values)
    disk = new_disk()
    filled(disk)
    disk.unlink(f"{PATH}/{4:020d}.log")
    disk.crash(power_cut=False)
    log = open_log(disk, SMALL)
    assert contents(log) == numbered(values[:4])
    assert append(log, batch(b"new"), epoch=9).first_offset == 4


@pytest.mark.parametrize(
    "planted", ["older offsets", "the first offset", "a copy of what was cut", "without an offset"]
)
def test_batches_of_another_topic_after_the_end_are_not_recovered(planted: str) -> None:
    """As a file system may show that has not cleared the blocks it gave us. All batches have one size."""
    disk = new_disk()
    log = open_log(disk)
    for number in range(6):
        append(log, batch(b"ours-%d" % number), epoch=1)
    log.truncate_to(Offset(4))
    log.close()
    ours = disk.read_file(f"{ONE}.log")
    theirs = bytearray()
    for number in range(4, 8):
        foreign = batch(b"them-%d" % number)
        offset = {"older offsets": number - 4, "the first offset": 0, "without an offset": -1}.get(planted, number - 1)
        patch_offset_and_epoch(foreign, 0, parse_header(foreign), offset, 1)
        theirs += foreign
    disk.overwrite(f"{ONE}.log", ours + theirs)
    disk.crash(power_cut=True)
    for recovery_point in (0, 4):
        log = open_log(disk, recovery_point=recovery_point)
        assert contents(log) == numbered([b"ours-%d" % number for number in range(4)])
        disk.crash(power_cut=True)


def test_deleted_records_stay_deleted_after_lost_offsets() -> None:
    log = open_log(new_disk(), SMALL, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    disk = new_disk()
    filled(disk)
    disk.crash(power_cut=False)
    log = open_log(disk, SMALL, log_start_offset=20)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (20, 20, 0)
    assert append(log, batch(b"new"), epoch=9).first_offset == 20


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_retry_across_a_crash_is_a_duplicate(seed: int, power_cut: bool) -> None:
    disk = new_disk(seed)
    log = open_log(disk, LogSettings(segment_bytes=400, flush_messages=1))
    sent = [batch(b"%d" % number * 20, producer=(9, 2, number)) for number in range(11)]
    for one in sent:
        append(log, one)
    if seed % 2:
        log.roll(NOW)
        log.flush()
    disk.crash(power_cut=power_cut)
    log = open_log(disk, recovery_point=log.recovery_point)
    for number in range(6, 11):
        info = append(log, sent[number])
        assert (info.duplicate, info.first_offset, info.last_offset) == (True, number, number)
    assert append(log, batch(b"11", producer=(9, 2, 11))).first_offset == 11


def test_a_retry_after_a_clean_stop_is_a_duplicate_for_all_five_batches() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    sent = [batch(b"%d" % number * 20, producer=(9, 2, number)) for number in range(11)]
    for one in sent:
        append(log, one)
    log.close()
    log = open_log(disk, SMALL, clean=True)
    for number in range(6, 11):
        assert append(log, sent[number]).duplicate


@pytest.mark.parametrize("damage", [b"", b"garbage", bytes(100)])
def test_producer_state_survives_a_damaged_snapshot(damage: bytes) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for number in range(11):
        append(log, batch(b"%d" % number * 20, producer=(9, 2, number)))
    log.close()
    for name in disk.listdir(PATH):
        if name.endswith(".snapshot"):
            disk.overwrite(f"{PATH}/{name}", damage)
    assert append(open_log(disk, SMALL, clean=True), batch(b"10" * 20, producer=(9, 2, 10))).duplicate


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_kill_at_any_operation_loses_no_acknowledged_record(power_cut: bool) -> None:
    settings = LogSettings(segment_bytes=400, index_interval_bytes=100, flush_messages=1)
    for kill_at in range(1, 400):
        disk = new_disk(kill_at)
        log = open_log(disk, settings)
        log.flush()
        disk.arm(kill_at_op=kill_at)
        acknowledged = 0
        try:
            for number in range(9):
                append(log, batch(b"%d" % number * 20), epoch=number // 4)
                acknowledged = number + 1
            log.close()
            return
        except Killed:
            pass
        recovery_point = log.recovery_point
        disk.crash(power_cut=power_cut)
        log = open_log(disk, settings, recovery_point=recovery_point)
        found = contents(log)
        assert acknowledged <= len(found) <= acknowledged + 1
        assert found == numbered([b"%d" % number * 20 for number in range(len(found))])
        append(log, batch(b"new"), epoch=9)
    pytest.fail("the plan never ran to its end")


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_kill_during_truncation_or_retention_leaves_no_gap(power_cut: bool) -> None:
    for kill_at in range(1, 60):
        for plan in ("truncate", "retain", "retain nothing"):
            disk = new_disk(kill_at)
            values = filled(disk)
            log = open_log(disk, SMALL, recovery_point=0)
            log.flush()
            disk.arm(kill_at_op=kill_at)
            try:
                if plan == "truncate":
                    log.truncate_to(Offset(5))
                else:
                    log.settings = LogSettings(retention_ms=10**6)
                    log.apply_retention(NOW + 10**6 + (9 if plan == "retain" else 99))
                disk.arm(kill_at_op=None)
            except Killed:
                pass
            disk.crash(power_cut=power_cut)
            log = open_log(disk, SMALL, recovery_point=5)
            start, end = log.log_start_offset, log.log_end_offset
            assert contents(log) == numbered(values[start:end], start)
            assert (start == 0 and end >= 5) if plan == "truncate" else end == 12
            assert append(log, batch(b"new"), epoch=9).first_offset == end


def damaged(disk: SimDisk, offset: int) -> list[bytes]:
    """A log of 12 records in one segment, killed, of which the one at `offset` is bad; all values."""
    values = filled(disk, settings=LogSettings())
    data = bytearray(disk.read_file(f"{ONE}.log"))
    data[sum(len(batch(value)) for value in values[:offset]) + 70] ^= 4
    disk.overwrite(f"{ONE}.log", bytes(data))
    disk.crash(power_cut=False)
    return values


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_kill_during_a_truncating_recovery_keeps_the_valid_part(power_cut: bool) -> None:
    """The good part is copied to a file that takes the bad one's name: one of the two is there, whole."""
    for kill_at in range(1, 100):
        disk = new_disk(kill_at)
        values = damaged(disk, 8)
        disk.arm(kill_at_op=kill_at)
        try:
            open_log(disk)
        except Killed:
            pass
        else:
            return
        disk.crash(power_cut=power_cut)
        log = open_log(disk)
        assert contents(log) == numbered(values[:8])
        assert append(log, batch(b"new"), epoch=9).first_offset == 8
        log.flush()
        disk.crash(power_cut=True)
        assert contents(open_log(disk)) == [*numbered(values[:8]), (8, b"new")]
        assert not [name for name in disk.listdir(PATH) if name.endswith(".tmp")]
    pytest.fail("the recovery never ran to its end")


@pytest.mark.parametrize("offset", [0, 1, 8])
def test_a_large_segment_is_truncated_by_copying_its_valid_part(offset: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    values = [bytes([number]) * 400_000 for number in range(10)]
    for value in values:
        append(log, batch(value))
    log.truncate_to(Offset(offset))
    assert contents(log) == numbered(values[:offset])
    assert append(log, batch(b"new")).first_offset == offset
    disk.crash(power_cut=False)
    assert contents(open_log(disk)) == [*numbered(values[:offset]), (offset, b"new")]


def test_without_space_for_a_copy_the_file_is_truncated_in_place() -> None:
    for op in ("open", "pwrite", "fsync", "rename"):
        disk = new_disk()
        values = damaged(disk, 8)
        disk.fail_next(op, errno.ENOSPC)
        log = open_log(disk)
        assert contents(log) == numbered(values[:8])
        assert append(log, batch(b"new"), epoch=9).first_offset == 8
        assert not [name for name in disk.listdir(PATH) if name.endswith(".tmp")]
        files = disk.open_files()
        log.abandon()
        assert files == 1


def test_recovery_fails_if_the_disk_refuses_to_truncate() -> None:
    for op in ("pwrite", "fsync", "rename", "fsync_dir"):
        disk = new_disk()
        values = damaged(disk, 8)
        disk.fail_next(op, errno.EIO)
        with pytest.raises(KafkaError):
            open_log(disk)
        assert disk.open_files() == 0
        assert contents(open_log(disk)) == numbered(values[:8])
