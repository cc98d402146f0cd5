"""A reader of mapped files under read_committed sees the committed records once and in order, whatever is cleaned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from raylog.core.ids import Offset
from raylog.logstore import local_log
from raylog.logstore.disk import RealDisk
from raylog.logstore.local_log import AbortedList, Chunk, LocalLog, SegmentFile
from raylog.logstore.settings import LogSettings
from raylog.logstore.shared_page import PageSnapshot
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_batches
from tests.logstore.batches import NOW, append, marker
from tests.logstore.local import close_all, list_aborted, open_real_log, publish, reader_of
from tests.logstore.test_cleaning import run_cleaning
from tests.support.forms import by_form

SETTINGS = LogSettings(segment_bytes=1200, index_interval_bytes=200, is_compacted=True, delete_retention_ms=0)


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    close_all()


class Bench:
    """A log with transactions, whose records have different keys: a cleaning removes only what was aborted."""

    def __init__(self, directory: Path) -> None:
        self.log = open_real_log(directory, SETTINGS)
        self.high_watermark = 0
        self.now_ms = NOW
        self.listings = 0
        self.open: dict[int, list[int]] = {}
        self.committed: list[int] = []
        self.written: list[int] = []

    def write(self, producer: int, count: int = 1, codec: Codec = Codec.NONE) -> None:
        """Of a transaction, except for producer -1."""
        first = self.log.log_end_offset
        records = [NewRecord(b"%d" % (first + number), b"%050d" % (first + number), NOW) for number in range(count)]
        transactional = producer >= 0
        batch = build_batch(
            records, producer_id=producer, producer_epoch=transactional - 1, transactional=transactional, codec=codec
        )
        append(self.log, batch, from_client=False)
        offsets = list(range(first, first + count))
        self.written += offsets
        (self.open.setdefault(producer, []) if transactional else self.committed).extend(offsets)

    def end(self, producer: int, *, committed: bool) -> None:
        append(self.log, marker(producer, committed=committed), from_client=False)
        offsets = self.open.pop(producer, [])
        if committed:
            self.committed = sorted([*self.committed, *offsets])

    def commit(self) -> PageSnapshot:
        """Everything so far is on all replicas."""
        self.high_watermark = self.log.log_end_offset
        return self.page

    @property
    def page(self) -> PageSnapshot:
        return publish(self.log, self.high_watermark)

    def clean(self) -> None:
        """Behind a new record: there must be something that is not clean."""
        self.write(-1)
        self.log.roll(NOW)
        self.now_ms += 1_000_000
        run_cleaning(self.log, RealDisk(), limit=self.page.last_stable_offset, now_ms=self.now_ms)

    def reader(self, offset: int = 0, *, keep_chunks: bool = False) -> LocalLog:
        def listing(segment: SegmentFile, start: int, wanted: int) -> AbortedList | None:
            self.listings += 1
            upto = self.page.last_stable_offset
            return list_aborted(self.log, segment, start, wanted, upto=upto)

        return reader_of(self.log, offset, keep_chunks=keep_chunks, listing=listing)


def offsets(chunk: Chunk) -> list[int]:
    return [record.offset for record in read_batches(chunk.records, from_offset=chunk.start, aborted=chunk.aborted)]


def read_all(reader: LocalLog, page: PageSnapshot, *, max_bytes: int = 1) -> list[int]:
    found: list[int] = []
    while (chunk := reader.read(page, max_bytes=max_bytes)) is not None:
        found += offsets(chunk)
        assert reader.accept(chunk, generation=page.generation)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_range_without_aborts_takes_no_request(bench: Bench) -> None:
    for _ in range(10):
        bench.write(1)
        bench.end(1, committed=True)
    reader = bench.reader()
    assert read_all(reader, bench.commit()) == bench.committed
    assert bench.listings == 0
    bench.write(1)
    bench.end(1, committed=False)
    bench.write(-1)
    assert read_all(reader, bench.commit()) == bench.committed[-1:]
    assert bench.listings == 1
    bench.write(-1)
    assert read_all(reader, bench.commit()) == bench.committed[-1:]
    assert read_all(bench.reader(bench.log.aborted_upto), bench.page) == bench.committed[-2:]
    assert bench.listings == 1


def test_one_request_for_each_segment_with_aborted_records(bench: Bench) -> None:
    bench.write(-1)
    for _ in range(30):
        bench.write(1)
        bench.end(1, committed=False)
    assert bench.log.segment_count > 4
    assert read_all(bench.reader(), bench.commit()) == bench.committed
    assert bench.listings == bench.log.segment_count


def test_the_last_stable_offset_ends_a_chunk_in_the_middle_of_a_segment(bench: Bench) -> None:
    for producer in (-1, 1, -1):
        bench.write(producer)
    page = bench.commit()
    reader = bench.reader()
    assert read_all(reader, page, max_bytes=10_000) == [0]
    assert reader.position == 1 < page.high_watermark
    bench.end(1, committed=True)
    assert read_all(reader, page) == [], "by the page of that time"
    assert read_all(reader, bench.commit(), max_bytes=10_000) == [1, 2]


def test_an_uncommitted_reader_reads_all_below_the_high_watermark(bench: Bench) -> None:
    for producer in (1, 2, -1):
        bench.write(producer)
    bench.end(1, committed=False)
    assert read_all(reader_of(bench.log, keep_chunks=False), bench.commit()) == [0, 1, 2]


def fill_with_aborted(bench: Bench) -> PageSnapshot:
    for _ in range(20):
        bench.write(-1)
        bench.write(1)
        bench.end(1, committed=False)
    return bench.commit()


def test_a_reader_on_an_old_file_keeps_its_list(bench: Bench) -> None:
    page = fill_with_aborted(bench)
    reader = bench.reader()
    chunk = reader.read(page, max_bytes=1)
    assert chunk is not None
    assert reader.accept(chunk, generation=0)
    for _ in range(3):  # from the second one on markers go, and their transactions from the index
        bench.clean()
        bench.commit()
    assert bench.log.aborted_transactions(Offset(0), Offset(10)) == []
    chunk = reader.read(bench.commit(), max_bytes=400)
    assert chunk is not None
    assert bench.listings == 1
    assert [record.offset for record in read_batches(chunk.records, from_offset=chunk.start)] == [1, 3]
    assert offsets(chunk) == [3]


def test_a_reader_on_an_old_file_without_a_list_goes_on_in_the_new_one(bench: Bench) -> None:
    fill_with_aborted(bench)
    reader = bench.reader()
    before = bench.page._replace(aborted_upto=0, last_stable_offset=1, high_watermark=1)
    chunk = reader.read(before, max_bytes=1)
    assert chunk is not None
    assert reader.accept(chunk, generation=0)
    assert bench.listings == 0
    for _ in range(3):
        bench.clean()
        bench.commit()
    assert read_all(reader, bench.page) == bench.committed[1:]


def test_a_file_that_is_never_the_segments_ends_the_read(bench: Bench) -> None:
    page = fill_with_aborted(bench)
    reader = reader_of(bench.log, keep_chunks=False, listing=lambda *_: None)
    with pytest.raises(Exception, match="the broker has another file"):
        reader.read(page)


def test_a_long_list_is_given_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.logstore.log._ABORTED_LISTED_MAX", 2)
    for producer in (1, 2, 3):
        bench.write(producer)
    for _ in range(5):
        bench.end(1, committed=False)
        bench.write(1)
    for producer in (3, 2, 1):
        bench.end(producer, committed=False)
    fill_with_aborted(bench)
    assert read_all(bench.reader(), bench.page) == bench.committed
    assert bench.log.segment_count < bench.listings < 25


def test_a_producers_next_transaction_is_another_one(bench: Bench) -> None:
    for committed in (False, True, False, True):
        bench.write(1)
        bench.end(1, committed=committed)
    assert read_all(bench.reader(), bench.commit()) == [2, 6]


def test_a_list_is_not_used_for_what_is_before_it(bench: Bench) -> None:
    page = fill_with_aborted(bench)
    reader = bench.reader()
    for offset in (9, 0):
        reader.seek(Offset(offset))
        assert read_all(reader, page) == [each for each in bench.committed if each >= offset]


class IsolatedReaders(RuleBasedStateMachine):
    """Two readers, one of which keeps its chunks, read while transactions end and segments are replaced."""

    @initialize()
    def begin(self) -> None:
        self.directory = TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(local_log, "KEPT_PIECE_BYTES_MAX", 300)
        self.bench = Bench(Path(self.directory.name))
        self.readers = [self.bench.reader(keep_chunks=keep) for keep in (False, True)]

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.fresh_reader_sees_all()
            close_all()
            self.directory.cleanup()
            self.patch.undo()

    def fresh_reader_sees_all(self) -> None:
        page = self.bench.commit()
        stable = page.last_stable_offset
        committed = [offset for offset in self.bench.committed if offset < stable]
        assert read_all(self.bench.reader(), page, max_bytes=500) == committed

    @rule(
        producer=st.sampled_from([1, 2, 3, -1]), count=st.integers(1, 3), codec=st.sampled_from([Codec.NONE, Codec.LZ4])
    )
    def write(self, producer: int, count: int, codec: Codec) -> None:
        self.bench.write(producer, count, codec)

    @rule(producer=st.sampled_from([1, 2, 3]), committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.bench.end(producer, committed=committed)

    @rule(committed=st.booleans())
    def end_all(self, committed: bool) -> None:
        for producer in list(self.bench.open):
            self.bench.end(producer, committed=committed)
        self.bench.commit()

    @rule()
    def commit(self) -> None:
        self.bench.commit()

    @rule(times=st.integers(1, 3))
    def clean(self, times: int) -> None:
        for _ in range(times):
            self.bench.clean()
            self.bench.commit()

    @rule(which=st.integers(0, 1), max_bytes=st.sampled_from([1, 300]), chunks=st.integers(1, 3))
    def read(self, which: int, max_bytes: int, chunks: int) -> None:
        reader = self.readers[which]
        for _ in range(chunks):
            page = self.bench.page
            start = reader.position
            chunk = reader.read(page, max_bytes=max_bytes)
            if chunk is None:
                assert not [each for each in self.bench.committed if start <= each < page.last_stable_offset]
                return
            assert start < chunk.next_offset <= page.last_stable_offset
            assert offsets(chunk) == [each for each in self.bench.committed if start <= each < chunk.next_offset]
            assert reader.accept(chunk, generation=page.generation)


IsolatedReaders.TestCase.settings = settings(
    max_examples=by_form(60, quick=20, long=3000),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestIsolatedReaders = IsolatedReaders.TestCase
