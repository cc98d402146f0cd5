"""A log assigns consecutive offsets, refuses invalid batches with Kafka's codes, and is unchanged by a refusal."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.disk import FileHandle
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings, MessageTimestampType
from raylog.protocol.records.batch import (
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    parse_header,
    patch_offset_and_epoch,
    verify_crc,
    write_crc,
)
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from tests.logstore.batches import (
    EPOCH,
    NOW,
    PATH,
    append,
    batch,
    contents,
    delete_retired,
    new_disk,
    numbered,
    open_log,
)
from tests.support.forms import by_form
from tests.support.sim_disk import SimDisk


def refusal(log: Log, record_set: bytes | bytearray, *, now_ms: int = NOW) -> ErrorCode:
    """The code with which the log refuses, after a look that nothing has changed."""
    before = (log.log_end_offset, log.size_bytes, log.segment_count, log.producers.encode_snapshot())
    view = bytearray(record_set)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(memoryview(view), leader_epoch=EPOCH, now_ms=now_ms)
    assert (log.log_end_offset, log.size_bytes, log.segment_count, log.producers.encode_snapshot()) == before
    assert view == record_set, "a refused record set must not be patched"
    return caught.value.code


def test_offsets_are_consecutive_and_the_epoch_is_written() -> None:
    log = open_log(new_disk())
    first = append(log, batch(b"a", b"b"))
    second = append(log, batch(b"c"), batch(b"d", codec=Codec.LZ4))
    assert (first.first_offset, first.last_offset, first.record_count) == (0, 1, 2)
    assert (second.first_offset, second.last_offset, second.record_count, second.duplicate) == (2, 3, 2, False)
    assert second.log_append_time_ms == -1
    assert contents(log) == numbered([b"a", b"b", b"c", b"d"])
    header = parse_header(log.read(Offset(3), max_bytes=1 << 20, upto=Offset(4)).records)
    assert (header.base_offset, header.partition_leader_epoch) == (3, EPOCH)


def test_log_append_time_is_the_brokers_clock() -> None:
    log = open_log(new_disk(), LogSettings(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME))
    info = append(log, batch(b"a", timestamp_ms=5), now_ms=NOW + 7)
    piece = log.read(Offset(0), max_bytes=1 << 20, upto=Offset(1)).records
    header = parse_header(piece)
    verify_crc(piece, 0, header)
    assert (info.log_append_time_ms, header.max_timestamp, header.timestamp_type) == (NOW + 7, NOW + 7, 1)
    assert log.offset_for_timestamp(NOW + 7, upto=Offset(1)) == (0, NOW + 7, EPOCH)


def test_malformed_and_forbidden_record_sets_are_refused_by_code() -> None:
    log = open_log(new_disk(), LogSettings(max_message_bytes=300, segment_bytes=250))
    append(log, batch(b"a"))
    good = batch(b"b")
    assert refusal(log, b"") is ErrorCode.INVALID_RECORD
    assert refusal(log, good[:-1]) is ErrorCode.CORRUPT_MESSAGE
    flipped = good.copy()
    flipped[-1] ^= 1
    assert refusal(log, flipped) is ErrorCode.CORRUPT_MESSAGE
    old = good.copy()
    old[16] = 1
    assert refusal(log, old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert refusal(log, batch(b"x" * 300)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(log, batch(b"x" * 200)) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert refusal(log, batch(b"", control=True)) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch(b"", transactional=True)) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch(b"") + batch(b"")) is ErrorCode.INVALID_RECORD
    two = batch(b"", producer=(1, 0, 0)) + batch(b"", producer=(1, 0, 1))
    assert refusal(log, two) is ErrorCode.INVALID_RECORD
    with pytest.raises(KafkaError, match="exactly one"):
        append(log, two, from_client=False)
    assert refusal(log, batch(b"", producer=(1, -1, 0))) is ErrorCode.INVALID_RECORD
    assert refusal(log, batch(b"", producer=(1, 0, -1))) is ErrorCode.INVALID_RECORD
    for at, value in ((22, 7), (26, 1), (60, 0)):  # codec 7, last offset delta 1, no records
        broken = good.copy()
        broken[at] = value
        write_crc(broken, 0, len(broken))
        assert refusal(log, broken) is ErrorCode.INVALID_RECORD
    claims = good.copy()
    claims[22] |= LOG_APPEND_TIME_BIT
    write_crc(claims, 0, len(claims))
    assert refusal(log, claims) is ErrorCode.INVALID_TIMESTAMP
    assert contents(log) == [(0, b"a")]


def test_timestamps_outside_the_limits_are_refused() -> None:
    bounds = LogSettings(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    log = open_log(new_disk(), bounds)
    assert refusal(log, batch(b"", timestamp_ms=NOW + 51)) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(log, batch(b"", timestamp_ms=NOW - 101)) is ErrorCode.INVALID_TIMESTAMP
    append(log, batch(b"", timestamp_ms=NOW + 50))
    append(log, batch(b"", timestamp_ms=NOW - 100))
    append(log, batch(b"", timestamp_ms=-1))


def test_reads_end_at_their_limits() -> None:
    log = open_log(new_disk())
    size = len(batch(b"0"))
    for number in range(6):
        append(log, batch(b"%d" % number))

    def offsets(start: int, max_bytes: int, upto: int, at_least: bool = True) -> tuple[int, int]:
        piece = log.read(Offset(start), max_bytes=max_bytes, upto=Offset(upto), at_least_one_batch=at_least)
        assert len(piece.records) % size == 0
        return piece.next_offset, len(piece.records) // size

    assert offsets(0, 1 << 20, 6) == (6, 6)
    assert offsets(0, 1 << 20, 4) == (4, 4)
    assert offsets(2, size * 2, 6) == (4, 2)
    assert offsets(2, size * 3 - 1, 6) == (4, 2)
    assert offsets(2, 1, 6) == (3, 1)
    assert offsets(2, 1, 6, at_least=False) == (2, 0)
    assert offsets(4, 1 << 20, 4) == (4, 0)
    assert offsets(6, 1 << 20, 6) == (6, 0)
    for outside in (-1, 7):
        with pytest.raises(KafkaError) as caught:
            offsets(outside, 1, 6)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_that_ends_above_the_limit_is_not_returned() -> None:
    log = open_log(new_disk())
    append(log, batch(b"a"))
    append(log, batch(b"b", b"c", b"d"))
    assert log.read(Offset(0), max_bytes=1 << 20, upto=Offset(2)).next_offset == 1
    assert log.read(Offset(2), max_bytes=1 << 20, upto=Offset(3)).records == b""
    assert log.read(Offset(2), max_bytes=1 << 20, upto=Offset(4)).next_offset == 4


def test_a_segment_is_rolled_by_size_age_and_index() -> None:
    size = len(batch(b"0"))
    log = open_log(new_disk(), LogSettings(segment_bytes=size * 2))
    for _ in range(5):
        append(log, batch(b"0"))
    assert log.segment_count == 3
    log.settings = LogSettings(segment_ms=1000)
    append(log, batch(b"0", timestamp_ms=NOW + 1000))
    assert log.segment_count == 3
    append(log, batch(b"0", timestamp_ms=NOW + 1001))
    assert log.segment_count == 4
    log.settings = LogSettings(segment_index_bytes=24, index_interval_bytes=1)
    for _ in range(3):
        append(log, batch(b"0"))
    assert log.segment_count == 5
    assert [offset for offset, _ in contents(log)] == list(range(10))


def test_roll_jitter_differs_per_segment() -> None:
    def age_when_rolled(partition: int, jitter_ms: int) -> int:
        disk = new_disk()
        settings = LogSettings(segment_ms=1000, segment_jitter_ms=jitter_ms)
        log = Log.open(
            disk,
            f"/data/t-{partition}",
            TopicPartition("t", partition),
            settings,
            now_ms=NOW,
            recovery_point=Offset(0),
            clean=False,
        )
        append(log, batch(b"0"))
        for age_ms in range(0, 1002, 20):
            append(log, batch(b"0", timestamp_ms=NOW + age_ms))
            if log.segment_count == 2:
                return age_ms
        return 1001

    assert {age_when_rolled(partition, 0) for partition in range(3)} == {1001}
    within = [age_when_rolled(partition, 400) for partition in range(30)]
    assert 600 <= min(within) < 700
    assert max(within) > 900
    assert len(set(within)) > 10
    wide = [age_when_rolled(partition, 1 << 40) for partition in range(30)]
    assert min(wide) < 200 < 800 < max(wide)
    assert within == [age_when_rolled(partition, 400) for partition in range(30)], "the same at every start"


def test_the_jitter_of_a_compacted_log_is_below_the_compaction_lag() -> None:
    settings = LogSettings(is_compacted=True, max_compaction_lag_ms=1000, segment_jitter_ms=3_600_000)
    log = open_log(new_disk(), settings)
    for _ in range(50):
        append(log, build_batch([NewRecord(b"key", b"value", NOW)]))
    assert log.segment_count == 1
    append(log, build_batch([NewRecord(b"key", b"value", NOW + 1001)]))
    assert log.segment_count == 2


def test_retention_is_by_time_size_and_log_start_offset() -> None:
    size = len(batch(b"0"))

    def filled(settings: LogSettings) -> Log:
        log = open_log(new_disk(), LogSettings(segment_bytes=size))
        for number in range(5):
            append(log, batch(b"0", timestamp_ms=NOW + number))
        log.settings = settings
        return log

    log = filled(LogSettings(retention_ms=10, retention_bytes=-1))
    assert log.apply_retention(NOW + 10) == 0
    assert log.apply_retention(NOW + 12, upto=Offset(1)) == 1
    assert log.apply_retention(NOW + 12) == 1
    assert (log.log_start_offset, log.segment_count) == (2, 3)
    assert log.apply_retention(NOW + 13) == 1
    assert (log.log_start_offset, log.segment_count, contents(log)) == (3, 2, [(3, b"0"), (4, b"0")])

    log = filled(LogSettings(retention_ms=-1, retention_bytes=size * 3 - 1))
    assert log.apply_retention(NOW) == 2
    log.settings = LogSettings(retention_ms=-1, retention_bytes=1)
    assert log.apply_retention(NOW) == 2
    assert contents(log) == [(4, b"0")], "the bytes to keep are in the active segment"
    log = filled(LogSettings(retention_ms=-1))
    log.delete_records_before(Offset(3))
    with pytest.raises(KafkaError):
        log.read(Offset(2), max_bytes=1, upto=Offset(5))
    assert log.apply_retention(NOW, segments_max=2) == 2
    assert log.apply_retention(NOW, segments_max=2) == 1
    assert contents(log) == [(3, b"0"), (4, b"0")]


def test_retention_deletes_the_active_segment_if_all_its_records_are_too_old() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(retention_ms=10))
    assert log.apply_retention(NOW + 99) == 0
    append(log, batch(b"a", producer=(7, 0, 0)))
    append(log, batch(b"b", producer=(7, 0, 1)))
    assert log.apply_retention(NOW + 11, upto=Offset(1)) == 0
    assert log.apply_retention(NOW + 11) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (2, 2, 0)
    assert log.apply_retention(NOW + 12) == 0
    disk.crash(power_cut=True)
    log = open_log(disk)
    assert append(log, batch(b"c", producer=(7, 0, 2))).first_offset == 2


def test_retention_frees_space_on_a_full_disk() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=200, retention_ms=10, file_delete_delay_ms=1000))
    for _ in range(3):
        append(log, batch(b"x" * 60, b"y" * 60))
    disk.capacity_bytes = disk.used_bytes()
    with suppress(KafkaError):  # the new segment finds no room as long as the old ones are there
        log.apply_retention(NOW + 11)
    assert log.log_start_offset >= 4
    delete_retired(log, disk, NOW + 1011)
    assert disk.used_bytes() < disk.capacity_bytes


@pytest.mark.parametrize("damage", [bytes(24), bytes(12), (5).to_bytes(8) + bytes(4)])
def test_retention_does_not_trust_a_damaged_index(damage: bytes) -> None:
    disk = new_disk()
    settings = LogSettings(segment_bytes=400, index_interval_bytes=100)
    log = open_log(disk, settings)
    for number in range(12):
        append(log, batch(b"%d" % number * 20))
    log.close()
    disk.overwrite(f"{PATH}/{0:020d}.timeindex", damage)
    disk.overwrite(f"{PATH}/{0:020d}.index", b"")
    log = open_log(disk, LogSettings(retention_ms=1000), clean=True)
    assert log.apply_retention(NOW + 1000) == 0


def test_the_largest_timestamp_is_not_that_of_deleted_records() -> None:
    log = open_log(new_disk())
    append(log, batch(b"a", timestamp_ms=90))
    append(log, build_batch([NewRecord(None, b"b", 80), NewRecord(None, b"c", 50)]))
    append(log, batch(b"d", timestamp_ms=40))
    log.delete_records_before(Offset(1))
    assert log.offset_of_max_timestamp(upto=Offset(4)) == (1, 80, EPOCH)
    log.delete_records_before(Offset(2))
    assert log.offset_of_max_timestamp(upto=Offset(4)) == (2, 50, EPOCH)
    log.delete_records_before(Offset(4))
    assert log.offset_of_max_timestamp(upto=Offset(4)) is None


@pytest.mark.parametrize("seed", range(by_form(6, quick=3, long=100)))
def test_the_largest_timestamp_is_that_of_the_readable_records(seed: int) -> None:
    rng = random.Random(seed)
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=1500, index_interval_bytes=150))
    stored: list[tuple[int, list[int]]] = []
    for _ in range(30):
        times = [rng.choice([-1, rng.randrange(60), 3 * len(stored)]) for _ in range(rng.randrange(1, 5))]
        first = append(log, build_batch([NewRecord(None, b"x" * 20, time) for time in times])).first_offset
        stored.append((first, times))
    if seed % 2:
        log.close()
        log = open_log(disk, log.settings, clean=True)
    for start in sorted(rng.sample(range(log.log_end_offset), 20)):
        log.delete_records_before(Offset(start))
        for upto in [first for first, _ in stored if first > start] + [log.log_end_offset]:
            records = [(first + n, time) for first, times in stored for n, time in enumerate(times)]
            readable = [(time, -offset) for offset, time in records if start <= offset < upto]
            largest, found = max(readable)
            wanted = None if largest < 0 else (-found, largest, EPOCH)
            assert log.offset_of_max_timestamp(upto=Offset(upto)) == wanted


def test_the_largest_committed_timestamp_is_found_without_reading_the_whole_segment() -> None:
    """The broker answers nothing else meanwhile."""

    class CountingDisk(SimDisk):
        reads = 0

        def pread(self, handle: FileHandle, size: int, position: int) -> bytes:
            self.reads += 1
            return super().pread(handle, size, position)

    disk = CountingDisk(random.Random(0))
    disk.mkdir("/data")
    log = open_log(disk)
    for number in range(1000):
        append(log, batch(b"x" * 1000, timestamp_ms=number))
    disk.reads = 0
    assert log.offset_of_max_timestamp(upto=Offset(999)) == (998, 998, EPOCH)
    assert disk.reads < 20


def test_producer_state_is_removed_with_its_records() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=100))
    for number in range(6):
        append(log, batch(b"%d" % number, producer=(1, 0, number)))
    log.truncate_fully_and_start_at(Offset(3))
    assert len(log.producers) == 0
    assert append(log, batch(b"new", producer=(1, 0, 77))).first_offset == 3


def test_a_truncation_does_not_change_the_last_use_of_producers() -> None:
    log = open_log(new_disk(), LogSettings(producer_id_expiration_ms=1000))
    for number in range(3):
        append(log, batch(b"%d" % number, producer=(1, 0, number)), now_ms=NOW + 5000)
    log.truncate_to(Offset(2))
    log.apply_retention(NOW + 5500)
    assert append(log, batch(b"1", producer=(1, 0, 1)), now_ms=NOW + 5500).duplicate


def test_a_full_disk_does_not_prevent_reads() -> None:
    disk = new_disk()
    settings = LogSettings(segment_bytes=20_000)
    log = open_log(disk, settings)
    for number in range(12):
        append(log, batch(b"%d" % number * 3000))
    log.close()
    disk.unlink(f"{PATH}/{0:020d}.index")
    disk.capacity_bytes = disk.used_bytes()
    log = open_log(disk, settings, clean=True)
    assert len(contents(log)) == 12
    assert log.offset_for_timestamp(NOW, upto=Offset(12)) == (0, NOW, EPOCH)


def test_offsets_are_found_by_timestamp() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=400, index_interval_bytes=100))
    times = [10, 30, 20, 40, 40, 35, 50]
    for number, time in enumerate(times):
        append(log, batch(b"%d" % number * 20, timestamp_ms=time), epoch=number)
    for reopened in (False, True):
        if reopened:
            log.close()
            log = open_log(disk, log.settings, clean=True)
        for target in range(55):
            wanted = next(((n, t, n) for n, t in enumerate(times) if t >= target), None)
            assert log.offset_for_timestamp(target, upto=Offset(7)) == wanted
        assert log.offset_for_timestamp(45, upto=Offset(6)) is None
        assert log.offset_of_max_timestamp(upto=Offset(7)) == (6, 50, 6)
        assert log.offset_of_max_timestamp(upto=Offset(6)) == (3, 40, 3)
    assert open_log(new_disk()).offset_of_max_timestamp(upto=Offset(0)) is None


def test_a_stored_batch_that_cannot_be_decoded_is_found_by_its_header() -> None:
    log = open_log(new_disk())
    append(log, batch(b"a", timestamp_ms=5))
    broken = batch(b"b" * 20, timestamp_ms=9, codec=Codec.ZSTD)
    broken[70:] = bytes(len(broken) - 70)
    write_crc(broken, 0, len(broken))
    append(log, broken, from_client=False)
    assert log.offset_for_timestamp(7, upto=Offset(2)) == (1, 9, EPOCH)


def test_truncation_removes_whole_batches_with_their_epochs_and_producers() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=200))
    for number in range(8):
        append(log, batch(b"%d" % number, b"x", producer=(1, 0, number * 2)), epoch=number)
    log.flush()
    log.truncate_to(Offset(9))
    assert (log.log_end_offset, log.recovery_point, log.leader_epochs.latest) == (8, 8, 3)
    assert log.end_offset_for_epoch(LeaderEpoch(2)) == (2, 6)
    assert log.end_offset_for_epoch(LeaderEpoch(3)) == (3, 8)
    assert append(log, batch(b"3", b"x", producer=(1, 0, 6)), epoch=9).duplicate
    assert append(log, batch(b"new", b"x", producer=(1, 0, 8)), epoch=9).first_offset == 8
    log.truncate_to(Offset(0))
    assert (log.log_end_offset, log.size_bytes, len(log.producers)) == (0, 0, 0)
    log.truncate_fully_and_start_at(Offset(100))
    assert append(log, batch(b"z")).first_offset == 100
    log.truncate_to(Offset(50))
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


def test_a_truncation_that_meets_a_damaged_batch_removes_nothing_and_takes_the_log_offline() -> None:
    """Otherwise the log would go on at its old end, behind a gap."""
    disk = new_disk()
    settings = LogSettings(segment_bytes=400)
    log = open_log(disk, settings)
    for number in range(12):
        append(log, batch(b"%d" % number + b"x" * 20))
    log.close()
    path = f"{PATH}/{0:020d}.log"
    damaged = bytearray(disk.read_file(path))
    damaged[parse_header(damaged).size_bytes + MAGIC_AT] ^= 0x40  # the second batch
    disk.overwrite(path, bytes(damaged))
    log = open_log(disk, settings, clean=True)
    files = disk.listdir(PATH)
    with pytest.raises(KafkaError) as caught:
        log.truncate_to(Offset(2))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline_reason is not None
    assert disk.listdir(PATH) == files


def test_a_follower_stores_the_leaders_bytes() -> None:
    leader, follower = open_log(new_disk(1)), open_log(new_disk(2))
    for number in range(5):
        append(leader, batch(b"%d" % number, producer=(1, 0, number)), epoch=number)
    piece = leader.read(Offset(0), max_bytes=1 << 20, upto=Offset(5))
    info = follower.append_as_follower(piece.records, now_ms=NOW)
    assert (info.first_offset, info.last_offset) == (0, 4)
    assert follower.read(Offset(0), max_bytes=1 << 20, upto=Offset(5)).records == piece.records
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert follower.producers.encode_snapshot() == leader.producers.encode_snapshot()
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(piece.records, now_ms=NOW)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("base_offset", [(1 << 31) + 1, 1 << 32])
def test_a_follower_stores_no_batch_that_recovery_would_drop_as_too_far(base_offset: int) -> None:
    """A segment has relative offsets of 31 bits; a log imported from Kafka may have larger gaps."""
    log = open_log(new_disk())
    log.append_as_follower(bytes(batch(b"x")), now_ms=NOW)
    far = batch(b"y")
    patch_offset_and_epoch(far, 0, parse_header(far), base_offset, EPOCH)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(bytes(far), now_ms=NOW)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert contents(log) == [(0, b"x")]
    append(log, batch(b"z"))
    assert contents(log) == [(0, b"x"), (1, b"z")]


def test_an_empty_follower_takes_the_batch_that_contains_the_leaders_log_start_offset() -> None:
    leader, follower = open_log(new_disk(1)), open_log(disk := new_disk(2))
    append(leader, batch(*[b"%d" % number for number in range(5)], producer=(1, 0, 0)), epoch=1)
    append(leader, batch(b"5", producer=(1, 0, 5)), epoch=1)
    records = leader.read(Offset(3), max_bytes=1 << 20, upto=Offset(6)).records
    follower.truncate_fully_and_start_at(Offset(3))
    follower.append_as_follower(records, now_ms=NOW)
    assert (follower.log_start_offset, follower.log_end_offset) == (3, 6)
    assert follower.read(Offset(3), max_bytes=1 << 20, upto=Offset(6)).records == records
    assert follower.producers.encode_snapshot() == leader.producers.encode_snapshot()
    follower.close()
    assert open_log(disk, log_start_offset=Offset(3)).log_end_offset == 6
    for start in (0, 6):  # a log with a record, and one whose next offset is in another batch
        other = open_log(new_disk(3))
        other.truncate_fully_and_start_at(Offset(start))
        if start == 0:
            append(other, batch(b"a"))
        with pytest.raises(KafkaError) as caught:
            other.append_as_follower(records, now_ms=NOW)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_with_a_later_leader_epoch_goes_offline_with_the_reason() -> None:
    log = open_log(new_disk())
    append(log, batch(b"a"), epoch=5)
    with pytest.raises(KafkaError, match="the log has leader epoch 5, but the current epoch is 4") as caught:
        append(log, batch(b"a"), epoch=4)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline_reason is not None


def test_a_full_disk_is_an_error_until_there_is_space_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=400))
    for number in range(3):
        append(log, batch(b"%d" % number * 50))
    disk.capacity_bytes = disk.used_bytes() + 10
    for _ in range(3):
        with pytest.raises(KafkaError) as caught:
            append(log, batch(b"x" * 50))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline_reason is None
    assert len(contents(log)) == 3
    disk.capacity_bytes = None
    assert append(log, batch(b"y")).first_offset == 3
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(KafkaError):
        append(log, batch(b"x" * 50))
    reasons = [vars(record)["reason"] for record in caplog.records if record.message == "disk full, writes refused"]
    assert reasons == ["[Errno 28] No space left on device"] * 2, "each time that the disk becomes full"
    disk.capacity_bytes = None
    disk.crash(power_cut=False)
    assert len(contents(open_log(disk))) == 4


def test_after_a_batch_failed_for_lack_of_space_no_later_one_is_appended_before_it() -> None:
    disk = new_disk()
    log = open_log(disk)
    large, small = batch(b"x" * 500, producer=(1, 0, 40)), batch(b"y", producer=(1, 0, 41))
    disk.capacity_bytes = disk.used_bytes() + 300
    for sent, code in (
        (large, ErrorCode.KAFKA_STORAGE_ERROR),
        (small, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (large, ErrorCode.KAFKA_STORAGE_ERROR),
        (small, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        with pytest.raises(KafkaError) as caught:
            append(log, sent)
        assert caught.value.code is code
    assert append(log, batch(b"another", producer=(2, 0, 7))).first_offset == 0
    disk.capacity_bytes = None
    assert append(log, large).first_offset == 1
    assert append(log, small).first_offset == 2
    assert append(log, small).duplicate


def test_another_disk_error_takes_the_log_offline_and_loses_nothing() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, batch(b"a"))
    disk.fail_next("pwrite", errno.EIO)
    with pytest.raises(KafkaError) as caught:
        append(log, batch(b"b"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline_reason is not None
    with pytest.raises(KafkaError, match="offline"):
        log.read(Offset(0), max_bytes=1, upto=Offset(1))
    log.close()
    disk.crash(power_cut=False)
    assert contents(open_log(disk)) == [(0, b"a")]


def test_a_failed_fsync_takes_the_log_offline() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(flush_messages=1))
    disk.fail_next("fsync", errno.EIO)
    with pytest.raises(KafkaError):
        append(log, batch(b"a"))
    assert log.offline_reason is not None
    assert log.recovery_point == 0


def test_flush_ms_counts_from_the_first_unflushed_append() -> None:
    log = open_log(new_disk(), LogSettings(flush_ms=100))
    assert log.plan_sync(NOW + 1000) is None
    append(log, batch(b"a"), now_ms=NOW)
    append(log, batch(b"a"), now_ms=NOW + 90)
    assert log.plan_sync(NOW + 99) is None
    plan = log.plan_sync(NOW + 100)
    assert plan is not None
    assert plan.upto == 2


def test_the_files_have_kafkas_layout() -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=250, index_interval_bytes=50))
    for number in range(5):
        append(log, batch(b"%d" % number * 30, producer=(4, 0, number)))
    log.close()
    names = [f"{base:020d}{suffix}" for base in (0, 2, 4) for suffix in (".index", ".log", ".snapshot", ".timeindex")]
    names.remove(f"{0:020d}.snapshot")
    assert disk.listdir(PATH) == sorted([*names, f"{5:020d}.snapshot", "leader-epoch-checkpoint"])
    assert disk.read_file(f"{PATH}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"
    size = len(batch(b"0" * 30))
    assert disk.read_file(f"{PATH}/{2:020d}.index") == (1).to_bytes(4) + size.to_bytes(4)
    assert disk.read_file(f"{PATH}/{2:020d}.timeindex") == NOW.to_bytes(8) + (0).to_bytes(4)


@pytest.mark.parametrize("opened_before", [0, 1, 2])
def test_a_roll_that_fails_for_lack_of_descriptors_is_retried(opened_before: int) -> None:
    disk = new_disk()
    log = open_log(disk, LogSettings(segment_bytes=200))
    append(log, batch(b"a" * 60, producer=(7, 0, 0)))
    before = disk.open_files()
    disk.fail_next("open", errno.EMFILE, after=opened_before)  # index, time index, segment
    assert refusal(log, batch(b"b" * 60)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline_reason, disk.open_files()) == (None, before)
    append(log, batch(b"b" * 60))
    assert log.segment_count == 2
    assert contents(log) == numbered([b"a" * 60, b"b" * 60])


def test_a_flush_that_fails_for_lack_of_descriptors_is_retried() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, batch(b"a"))
    disk.fail_next("fsync_dir", errno.EMFILE)
    with pytest.raises(KafkaError, match="Too many open files"):
        log.flush()
    assert (log.recovery_point, log.offline_reason) == (0, None)
    log.flush()
    assert log.recovery_point == 1
