"""Compaction of one log against a naive map: random records, transactions, codecs, timestamps and segments."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import LeaderEpoch, Offset
from raylog.logstore.cleaner import CleanedLog, CleanerBuffers, CleaningPlan, clean
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.batch import split_batches, verify_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import Record, read_records
from tests.logstore.batches import NOW, PATH, TP, marker, new_disk
from tests.support.forms import by_form
from tests.support.sim_disk import SimDisk

SETTINGS = LogSettings(
    segment_bytes=700,
    index_interval_bytes=100,
    is_compacted=True,
    is_deleted=False,
    delete_retention_ms=1000,
    file_delete_delay_ms=30,
)
BUFFERS = CleanerBuffers(dedupe_bytes=1 << 20, io_bytes=512, load_factor=0.9, io_bytes_per_second=1e12)
SECRET = bytes(16)
EPOCH = LeaderEpoch(3)
MODELS = by_form(60, quick=10, long=2000)


def open_log(disk: Disk, settings: LogSettings = SETTINGS, *, clean: bool = True, cleaned_upto: int = 0) -> Log:
    return Log.open(
        disk,
        PATH,
        TP,
        settings,
        now_ms=NOW,
        recovery_point=Offset(0),
        clean=clean,
        cleaned_upto=Offset(cleaned_upto),
    )


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], timestamp_ms: int = NOW) -> int:
    """Append one batch; returns the offset of its first record."""
    records = build_batch([NewRecord(key, value, timestamp_ms) for key, value in pairs])
    return log.append_as_leader(memoryview(records), leader_epoch=EPOCH, now_ms=NOW).first_offset


def run_cleaning(
    log: Log, disk: Disk, *, limit: int | None = None, now_ms: int = NOW, buffers: CleanerBuffers = BUFFERS
) -> CleanedLog | None:
    """Clean what can be cleaned, whatever the dirty ratio; None if there is nothing."""
    log.flush()
    upto = log.log_end_offset if limit is None else Offset(limit)
    if log.cleanable(limit=upto, now_ms=now_ms) is None:
        return None
    plan, cleaned = write_cleaned(log, disk, limit=upto, now_ms=now_ms, buffers=buffers)
    assert log.begin_swaps(plan, cleaned)
    take_steps(log, now_ms=now_ms)
    assert log.cleaned_upto == cleaned.upto
    return cleaned


def take_steps(log: Log, steps_max: int | None = None, *, now_ms: int = NOW) -> int:
    """Swap in cleaned segments; returns the number of steps that were taken."""
    steps = 0
    while steps != steps_max and (sync := log.swap_next(now_ms)):
        sync()
        steps += 1
    return steps


def write_cleaned(
    log: Log, disk: Disk, *, limit: Offset | None = None, now_ms: int = NOW, buffers: CleanerBuffers = BUFFERS
) -> tuple[CleaningPlan, CleanedLog]:
    """A cleaning whose segments are not swapped in yet."""
    log.flush()
    cleanable = log.cleanable(limit=log.log_end_offset if limit is None else limit, now_ms=now_ms)
    assert cleanable is not None
    plan = log.plan_cleaning(cleanable, now_ms=now_ms, secret=SECRET)
    return plan, clean(disk, plan, buffers)


def records_in(log: Log, *, committed: bool = False) -> list[Record]:
    """All records from the log start on, read in small fetches; with `committed` without those of aborted
    transactions."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes=300, upto=log.log_end_offset)
        if piece.next_offset == offset:
            break
        aborted = sorted(log.aborted_transactions(offset, piece.next_offset), key=lambda each: each.first_offset)
        for position, header in split_batches(piece.records):
            verify_crc(piece.records, position, header)
            skipped = committed and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.last_offset
                for each in aborted
            )
            if not header.is_control and not skipped:
                found += [r for r in read_records(piece.records, position, header) if r.offset >= offset]
        offset = piece.next_offset
    return found


def table_of(records: list[Record]) -> dict[bytes, bytes]:
    table: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


@pytest.fixture
def disk() -> SimDisk:
    return new_disk()


def test_the_latest_record_of_each_key_remains(disk: SimDisk) -> None:
    log = open_log(disk)
    for number in range(60):
        put(log, (b"k%d" % (number % 7), b"v%d" % number))
    before = {record.offset: record for record in records_in(log)}
    segments = log.segment_count
    cleaned = run_cleaning(log, disk)
    assert cleaned is not None
    after = records_in(log)
    assert table_of(after) == table_of(list(before.values()))
    assert all(before[record.offset] == record for record in after)
    below = [record for record in after if record.offset < log.cleaned_upto]
    assert len(below) == len({record.key for record in below}) == 7
    assert run_cleaning(log, disk) is None
    put(log, (b"k0", b"w"))
    log.roll(NOW)
    run_cleaning(log, disk)
    assert log.segment_count < segments  # small segments become one


def test_the_active_segment_and_what_may_be_truncated_are_not_cleaned(disk: SimDisk) -> None:
    log = open_log(disk)
    for number in range(40):
        put(log, (b"k", b"v%d" % number))
    log.roll(NOW)
    run_cleaning(log, disk, limit=20)
    assert log.cleaned_upto <= 20
    assert [record.offset for record in records_in(log) if record.offset >= 20] == list(range(20, 40))
    log.truncate_to(Offset(20))
    assert table_of(records_in(log)) == {b"k": b"v19"}


def test_nothing_is_cleaned_before_the_lag_has_passed(disk: SimDisk) -> None:
    log = open_log(disk, replace(SETTINGS, min_compaction_lag_ms=500))
    for number in range(40):
        put(log, (b"k", b"v"), timestamp_ms=NOW + number)
    log.roll(NOW)
    assert run_cleaning(log, disk, now_ms=NOW + 500) is None
    assert run_cleaning(log, disk, now_ms=NOW + 539) is not None
    assert [record.offset for record in records_in(log)] == [39]


def test_a_log_is_overdue_when_a_dirty_record_is_too_old(disk: SimDisk) -> None:
    log = open_log(disk, replace(SETTINGS, max_compaction_lag_ms=500, segment_bytes=1 << 20))
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"), timestamp_ms=NOW + 500)
    assert log.segment_count == 1
    put(log, (b"k", b"3"), timestamp_ms=NOW + 501)  # the segment is rolled as well
    assert log.segment_count == 2
    log.flush()
    for now_ms, overdue in ((NOW + 500, False), (NOW + 501, True)):
        found = log.cleanable(limit=log.log_end_offset, now_ms=now_ms)
        assert found is not None
        assert found.is_overdue is overdue


def test_tombstones_stay_until_their_horizon_and_the_values_do_not_return(disk: SimDisk) -> None:
    log = open_log(disk)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    log.roll(NOW)
    run_cleaning(log, disk, now_ms=NOW)
    assert [(r.key, r.value) for r in records_in(log)] == [(b"b", b"1"), (b"a", None)]
    for now_ms, expected in ((NOW + 999, [b"b", b"a", b"c"]), (NOW + 1000, [b"b", b"c"])):
        put(log, (b"c", b"%d" % now_ms))
        log.roll(NOW)
        run_cleaning(log, disk, now_ms=now_ms)
        assert [record.key for record in records_in(log)] == expected


def test_records_of_aborted_transactions_go_and_their_markers_later(disk: SimDisk) -> None:
    log = open_log(disk)
    put(log, (b"k", b"before"))
    append_as_coordinator(log, transactional(7, 0, (b"k", b"aborted")))
    append_as_coordinator(log, marker(7, committed=False))
    log.roll(NOW)
    run_cleaning(log, disk)
    assert table_of(records_in(log)) == {b"k": b"before"}
    assert [each.first_offset for each in log.aborted_transactions(Offset(0), log.log_end_offset)] == [1]
    assert log.producers.producers()[7].last_sequence == 0
    log = reopened(log, disk)
    assert log.producers.producers()[7].last_sequence == 0  # the batch is still there, without its record
    markers = []
    for sequence, now_ms in enumerate((NOW, NOW, NOW + 500, NOW + 1500), start=1):
        append_as_coordinator(log, transactional(7, sequence, (b"k", b"later")))
        append_as_coordinator(log, marker(7, committed=True))
        log.roll(NOW)
        run_cleaning(log, disk, now_ms=now_ms)
        piece = log.read(Offset(0), max_bytes=9999, upto=log.log_end_offset)
        control = [header.base_offset for _, header in split_batches(piece.records) if header.is_control]
        markers.append((2 in control, len(log.aborted_transactions(Offset(0), log.log_end_offset))))
    assert markers == [(True, 1), (True, 0), (True, 0), (False, 0)]


def test_a_marker_supersedes_no_record(disk: SimDisk) -> None:
    log = open_log(disk)
    key_of_commits = bytes.fromhex("00000001")
    put(log, (key_of_commits, b"value"))
    append_as_coordinator(log, transactional(7, 0, (b"k", b"v")))
    append_as_coordinator(log, marker(7, committed=True))
    append_as_coordinator(log, marker(7, committed=True))
    put(log, (b"other", b"value"))
    log.roll(NOW)
    run_cleaning(log, disk)
    assert [record.key for record in records_in(log)] == [key_of_commits, b"k", b"other"]


def append_as_coordinator(log: Log, batch: bytearray) -> None:
    log.append_as_leader(memoryview(batch), leader_epoch=EPOCH, now_ms=NOW, from_client=False)


def transactional(producer_id: int, sequence: int, *pairs: tuple[bytes, bytes | None]) -> bytearray:
    return build_batch(
        [NewRecord(key, value, NOW) for key, value in pairs],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def reopened(log: Log, disk: Disk) -> Log:
    cleaned_upto = log.cleaned_upto
    log.close()
    return open_log(disk, log.settings, cleaned_upto=cleaned_upto)


def test_a_record_without_a_key_is_refused(disk: SimDisk) -> None:
    log = open_log(disk)
    with pytest.raises(KafkaError) as caught:
        put(log, (b"a", b"1"), (None, b"2"))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_a_damaged_batch_is_not_copied(disk: SimDisk) -> None:
    log = open_log(disk)
    for number in range(20):
        put(log, (b"k", b"v%d" % number))
    log.flush()
    handle = disk.open(f"{PATH}/00000000000000000000.log")
    disk.pwrite(handle, b"X", 70)
    disk.close(handle)
    with pytest.raises(KafkaError, match=r"00000000000000000000.log: at position 0: .* fails its checksum"):
        run_cleaning(log, disk)


def test_more_keys_than_fit_the_buffer_are_cleaned_in_several_cleanings(disk: SimDisk) -> None:
    log = open_log(disk)
    for _ in range(2):
        for number in range(0, 60, 2):
            put(log, *((b"key-%d" % key, b"v") for key in (number, number + 1)))
    log.roll(NOW)
    buffers = replace(BUFFERS, dedupe_bytes=24 * 12)
    cleanings = 0
    while run_cleaning(log, disk, buffers=buffers) is not None:
        cleanings += 1
    assert cleanings > 5
    assert sorted(record.offset for record in records_in(log)) == list(range(60, 120))


def test_a_batch_with_more_keys_than_fit_the_buffer_is_cleaned(disk: SimDisk) -> None:
    log = open_log(disk, replace(SETTINGS, segment_bytes=1 << 20))
    put(log, *((b"key-%d" % number, b"v") for number in range(50)))
    put(log, (b"key-7", b"w"))
    log.roll(NOW)
    assert run_cleaning(log, disk, buffers=replace(BUFFERS, dedupe_bytes=24 * 3)) is not None
    while run_cleaning(log, disk, buffers=replace(BUFFERS, dedupe_bytes=24 * 3)) is not None:
        pass
    assert len(records_in(log)) == 50


def test_a_load_factor_of_zero_cleans_batch_by_batch(disk: SimDisk) -> None:
    log = open_log(disk, replace(SETTINGS, segment_bytes=1 << 20))
    for number in range(4):
        put(log, (b"a", b"%d" % number), (b"b", b"%d" % number))
    log.roll(NOW)
    buffers = replace(BUFFERS, dedupe_bytes=24, load_factor=0.0)
    while run_cleaning(log, disk, buffers=buffers) is not None:
        pass
    assert [record.offset for record in records_in(log)] == [6, 7]


def test_a_cleaning_of_a_log_that_was_truncated_meanwhile_is_dropped(disk: SimDisk) -> None:
    log = open_log(disk)
    for number in range(40):
        put(log, (b"k", b"v%d" % number))
    plan, cleaned = write_cleaned(log, disk)
    log.truncate_to(Offset(10))
    assert not log.begin_swaps(plan, cleaned)
    assert table_of(records_in(log)) == {b"k": b"v9"}


@pytest.mark.parametrize("steps", range(6))
def test_what_is_left_of_a_cleaning_is_dropped_by_a_truncation(disk: SimDisk, steps: int) -> None:
    log = open_log(disk)
    for number in range(60):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    plan, cleaned = write_cleaned(log, disk)
    assert len(cleaned.segments) > 3
    assert log.begin_swaps(plan, cleaned)
    assert take_steps(log, steps) == steps
    log.truncate_to(Offset(40))
    assert not log.swap_next(NOW)
    assert log.cleaned_upto == 0
    assert not [name for name in disk.listdir(PATH) if name.endswith(".swap")]
    for number in range(40, 60):
        put(log, (b"k%d" % (number % 3), b"w%d" % number))
    assert [record.value for record in records_in(log)][-20:] == [b"w%d" % number for number in range(40, 60)]


@pytest.mark.parametrize("steps", range(6))
def test_a_cleaning_ends_when_retention_has_deleted_a_segment(disk: SimDisk, steps: int) -> None:
    log = open_log(disk, replace(SETTINGS, is_deleted=True, retention_ms=-1, segment_bytes=200))
    for number in range(40):
        put(log, (b"k%d" % (number % 5), b"v%d" % number))
    plan, cleaned = write_cleaned(log, disk)
    expected = table_of(records_in(log))
    assert log.begin_swaps(plan, cleaned)
    assert take_steps(log, steps) == steps
    log.delete_records_before(Offset(20))
    log.apply_retention(NOW)
    take_steps(log)
    assert log.cleaned_upto == 0
    assert not [name for name in disk.listdir(PATH) if name.endswith(".swap")]
    assert table_of(records_in(log)) == expected


@pytest.mark.parametrize("steps", range(6))
def test_a_close_leaves_no_unfinished_swap(disk: SimDisk, steps: int) -> None:
    log = open_log(disk)
    for number in range(60):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    plan, cleaned = write_cleaned(log, disk)
    assert log.begin_swaps(plan, cleaned)
    assert take_steps(log, steps) == steps
    expected = records_in(log)
    log.close()
    assert not [name for name in disk.listdir(PATH) if name.endswith(".swap")]
    assert records_in(open_log(disk)) == expected


@dataclass
class Model:
    """The naive log: all records with their fate."""

    records: dict[int, Record] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    """Offsets of records of aborted transactions."""

    def table(self, upto: int | None = None) -> dict[bytes, bytes]:
        shown = [r for offset, r in sorted(self.records.items()) if offset not in self.aborted]
        return table_of([r for r in shown if upto is None or r.offset < upto])


class Writer:
    """Appends random batches and transactions of several producers."""

    def __init__(
        self,
        log: Log,
        rng: random.Random,
        *,
        codecs: Sequence[Codec] = tuple(Codec),
        producers: Sequence[int] = (-1, -1, 1, 2, 3),
        tick_ms: int = 1,
    ) -> None:
        """Producers 2 and 3 write in transactions, 1 is idempotent. Timestamps are multiples of `tick_ms`."""
        self.log = log
        self.model = Model()
        self._rng = rng
        self._codecs = codecs
        self._producers = producers
        self._tick_ms = tick_ms
        self._open: dict[int, list[int]] = {}
        self._sequences: dict[int, int] = {}
        self.clock_ms = NOW

    def step(self) -> None:
        rng = self._rng
        self.clock_ms += rng.randrange(50)
        if self._open and rng.random() < 0.3:
            self.end_transaction()
            return
        producer_id = rng.choice(self._producers)
        records = [
            NewRecord(
                b"key-%d" % rng.randrange(12),
                None if rng.random() < 0.2 else rng.randbytes(rng.randrange(20)),
                (self.clock_ms + rng.randrange(-500, 500)) // self._tick_ms * self._tick_ms,
                [("h", b"x")] if rng.random() < 0.2 else [],
            )
            for _ in range(rng.randrange(1, 5))
        ]
        sequence = self._sequences.get(producer_id, 0)
        in_transaction = producer_id in (2, 3)
        batch = build_batch(
            records,
            codec=rng.choice(self._codecs),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=in_transaction,
        )
        first = self.log.append_as_leader(memoryview(batch), leader_epoch=EPOCH, now_ms=NOW).first_offset
        self._sequences[producer_id] = sequence + len(records)
        for number, record in enumerate(records):
            self.model.records[first + number] = Record(
                first + number, record.timestamp_ms, 0, record.key, record.value, tuple(record.headers)
            )
        if in_transaction:
            self._open.setdefault(producer_id, []).extend(range(first, first + len(records)))

    def end_transaction(self) -> None:
        producer_id = self._rng.choice(sorted(self._open))
        offsets, committed = self._open.pop(producer_id), self._rng.random() < 0.5
        batch = marker(producer_id, committed=committed, timestamp_ms=self.clock_ms)
        self.log.append_as_leader(memoryview(batch), leader_epoch=EPOCH, now_ms=NOW, from_client=False)
        if not committed:
            self.model.aborted.update(offsets)

    def end_all(self) -> None:
        while self._open:
            self.end_transaction()


@pytest.mark.parametrize("seed", range(MODELS))
def test_a_reader_from_the_start_ends_with_the_same_table(seed: int) -> None:
    rng = random.Random(seed)
    disk = new_disk(seed)
    settings = replace(SETTINGS, segment_bytes=rng.choice([300, 700, 2000]), delete_retention_ms=rng.choice([0, 400]))
    writer = Writer(open_log(disk, settings), rng)
    for _ in range(rng.randrange(2, 6)):
        for _ in range(rng.randrange(5, 40)):
            writer.step()
        if rng.random() < 0.3:
            writer.log.roll(NOW)
        log = writer.log
        before = {record.offset for record in records_in(log)}
        stable = log.last_stable_offset(log.log_end_offset)
        keys = rng.choice([4, 50_000])
        run_cleaning(log, disk, limit=stable, now_ms=writer.clock_ms, buffers=replace(BUFFERS, dedupe_bytes=24 * keys))
        check_cleaned(writer, before, stable)
        if rng.random() < 0.5:
            writer.log = reopened(log, disk)
            check_cleaned(writer, before, stable)
    writer.end_all()
    assert table_of(records_in(writer.log, committed=True)) == writer.model.table()


def check_cleaned(writer: Writer, before: set[int], stable: Offset) -> None:
    """`before` are the offsets of the records before the cleaning."""
    log, model = writer.log, writer.model
    found = records_in(log)
    assert all(model.records[record.offset] == record for record in found)
    offsets = {record.offset for record in found}
    assert offsets <= before
    assert {offset for offset in before if offset >= log.cleaned_upto} <= offsets | model.aborted
    committed = [record for record in records_in(log, committed=True) if record.offset < stable]
    assert table_of(committed) == model.table(stable)
    clean_part = [record for record in found if record.offset < log.cleaned_upto]
    assert not {record.offset for record in clean_part} & model.aborted
    assert len(clean_part) == len({record.key for record in clean_part})
