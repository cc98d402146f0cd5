"""A reader of mapped files sees the records below the high watermark, complete and once, and survives truncation."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset
from raylog.logstore import local_log
from raylog.logstore.disk import RealDisk
from raylog.logstore.local_log import Chunk, LocalLog, SegmentFile
from raylog.logstore.log import Log
from raylog.logstore.publication import Publication
from raylog.logstore.settings import LogSettings
from raylog.logstore.shared_page import PageSnapshot
from raylog.protocol.records.batch import parse_header, patch_offset_and_epoch
from raylog.protocol.records.reader import read_batches
from tests.logstore.batches import NOW, append, batch
from tests.logstore.local import close_all, locate, open_real_log, publish, reader_of
from tests.logstore.test_cleaning import put, records_in, run_cleaning
from tests.support.descriptors import mapped_within, open_within
from tests.support.forms import by_form

RETENTION_MS = 1000
ROOT = Path(__file__).resolve().parent.parent.parent


def rows(chunk: Chunk) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in read_batches(chunk.records, from_offset=chunk.start)]


def read_all(reader: LocalLog, page: PageSnapshot, *, max_bytes: int = 1000) -> list[tuple[int, bytes | None]]:
    """Everything up to the watermark, in as many chunks as it takes."""
    found: list[tuple[int, bytes | None]] = []
    while (chunk := reader.read(page, max_bytes=max_bytes)) is not None:
        found += rows(chunk)
        assert reader.accept(chunk, generation=page.generation)
    return found


@pytest.fixture(params=["mapped", "read"])
def keep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways to hold a file. Those of tests are small: let them be mapped, or read in pieces, all the same."""
    monkeypatch.setattr(local_log, "KEPT_PIECE_BYTES_MAX", 300)
    monkeypatch.setattr(local_log, "PIECE_BYTES_MIN", 250)
    return bool(request.param == "mapped")


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_real_log(tmp_path, LogSettings(segment_bytes=2000, index_interval_bytes=200))


def fill(log: Log, count: int, *, first: int = 0, size: int = 100) -> list[tuple[int, bytes]]:
    """Appends batches of one record each; the rows."""
    values = [b"%0*d" % (size, number) for number in range(first, first + count)]
    for value in values:
        append(log, batch(value))
    return list(enumerate(values, first))


class TestReading:
    def test_across_segments(self, log: Log, keep: bool) -> None:
        expected = fill(log, 60)
        assert log.segment_count > 3
        for max_bytes in (1, 500, 5000):
            reader = reader_of(log, keep_chunks=keep)
            assert read_all(reader, publish(log), max_bytes=max_bytes) == expected
            reader.close()

    def test_from_the_middle_of_a_batch(self, log: Log, keep: bool) -> None:
        append(log, batch(b"a", b"b", b"c"))
        append(log, batch(b"d"))
        reader = reader_of(log, 1, keep_chunks=keep)
        chunk = reader.read(publish(log))
        assert chunk is not None
        assert (chunk.start, chunk.next_offset) == (1, 4)
        assert rows(chunk) == [(1, b"b"), (2, b"c"), (3, b"d")]

    def test_while_the_log_grows(self, log: Log, keep: bool) -> None:
        reader = reader_of(log, keep_chunks=keep)
        assert reader.read(publish(log)) is None
        for first in range(0, 100, 5):
            expected = fill(log, 5, first=first)
            assert read_all(reader, publish(log)) == expected

    def test_not_above_the_high_watermark(self, log: Log, keep: bool) -> None:
        expected = fill(log, 60)
        reader = reader_of(log, keep_chunks=keep)
        seen = []
        for high_watermark in (0, 1, 2, 17, 18, 19, 40, 60):
            page = publish(log, high_watermark)
            seen += read_all(reader, page)
            assert seen == expected[:high_watermark]

    def test_a_high_watermark_within_a_batch_excludes_the_batch(self, log: Log, keep: bool) -> None:
        append(log, batch(b"a"))
        append(log, batch(b"b", b"c"))
        assert read_all(reader_of(log, keep_chunks=keep), publish(log, 2)) == [(0, b"a")]

    def test_at_least_one_batch_and_at_most_max_bytes(self, log: Log, keep: bool) -> None:
        sizes = [len(batch(value)) for _, value in fill(log, 3)]
        for max_bytes, count in ((1, 1), (sizes[0], 1), (sum(sizes) - 1, 2), (sum(sizes), 3)):
            chunk = reader_of(log, keep_chunks=keep).read(publish(log), max_bytes=max_bytes)
            assert chunk is not None
            assert len(chunk.records) == sum(sizes[:count])

    def test_with_missing_offsets(self, log: Log, keep: bool) -> None:
        """Compaction leaves such gaps: within a segment, at its end, and before the watermark."""
        expected = []
        for offset in (3, 4, 9, 30, 31, 50):
            part = batch(b"%d" % offset * 50)
            patch_offset_and_epoch(part, 0, parse_header(part), offset, 3)
            log.append_as_follower(memoryview(part), now_ms=NOW)
            expected.append((offset, b"%d" % offset * 50))
            if offset in (4, 30):
                log.roll(NOW)
        for start in (0, 3, 5, 10, 31, 32, 50, 51):
            at_or_behind = [row for row in expected if row[0] >= start]
            assert read_all(reader_of(log, start, keep_chunks=keep), publish(log)) == at_or_behind
            assert read_all(reader_of(log, start, keep_chunks=keep), publish(log), max_bytes=1) == at_or_behind
        for high_watermark in (4, 5, 9, 10, 31):
            below = [row for row in expected if row[0] < high_watermark]
            assert read_all(reader_of(log, keep_chunks=keep), publish(log, high_watermark)) == below

    def test_outside_the_log(self, log: Log, keep: bool) -> None:
        fill(log, 10)
        log.delete_records_before(Offset(4))
        page = publish(log, 8)
        for offset in (0, 3, 9, 11):
            with pytest.raises(KafkaError, match=rf"offset {offset} is not in \[4, 8\]") as refused:
                reader_of(log, offset, keep_chunks=keep).read(page)
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert reader_of(log, 4, keep_chunks=keep).read(page) is not None
        assert reader_of(log, 8, keep_chunks=keep).read(page) is None

    def test_no_byte_after_the_readable_position_is_read(self, log: Log, keep: bool) -> None:
        """There the broker may be in the middle of a write."""
        expected = fill(log, 5)
        page = publish(log)
        with open(locate(log, 0).descriptor, "rb") as file, open(f"/proc/self/fd/{file.fileno()}", "r+b") as writable:
            writable.seek(page.readable_position)
            writable.write(b"\xff" * 3000)
        for start in range(5):
            assert read_all(reader_of(log, start, keep_chunks=keep), page, max_bytes=200) == expected[start:]

    def test_seek(self, log: Log, keep: bool) -> None:
        expected = fill(log, 60)
        reader, page = reader_of(log, keep_chunks=keep), publish(log)
        for offset in (59, 0, 30, 31, 1):
            reader.seek(Offset(offset))
            assert read_all(reader, page) == expected[offset:]

    def test_segments_that_compaction_replaces(self, log: Log, keep: bool) -> None:
        """A reader in the middle of a segment finishes on its old file, and finds its place in the new segments."""
        log.settings = replace(log.settings, is_compacted=True)
        for number in range(120):
            put(log, (b"k%d" % (number % 9), b"%0100d" % number))
        reader, page = reader_of(log, keep_chunks=keep), publish(log)
        chunk = reader.read(page, max_bytes=500)
        assert chunk is not None
        seen = rows(chunk)
        assert reader.accept(chunk, generation=page.generation)
        for _ in range(3):  # of the second one on segments are merged
            run_cleaning(log, RealDisk())
            put(log, (b"k0", b"new"))
            log.roll(NOW)
        page = publish(log)
        seen += read_all(reader, page, max_bytes=500)
        offsets = [offset for offset, _ in seen]
        assert offsets == sorted(set(offsets))
        finished = next(number for number in range(len(offsets)) if offsets[number] != number)
        assert finished > len(rows(chunk))  # the old file
        kept = [(record.offset, record.value) for record in records_in(log)]
        assert seen[finished:] == [row for row in kept if row[0] > offsets[finished - 1]]

    def test_missing_next_segment(self, log: Log) -> None:
        fill(log, 5)
        first = publish(log)
        log.roll(NOW)
        fill(log, 5, first=5)
        page = publish(log)
        reader = LocalLog("t-0", lambda _: locate(log, 0), Offset(0))
        chunk = reader.read(page)
        assert chunk is not None
        assert reader.accept(chunk, generation=0)
        assert reader.read(first) is None
        with pytest.raises(KafkaError, match="no complete batch follows offset 5"):
            reader.read(page)


class TestGeneration:
    def test_truncated_records_are_not_accepted(self, log: Log, keep: bool) -> None:
        fill(log, 5)
        reader, page = reader_of(log, keep_chunks=keep), publish(log)
        chunk = reader.read(page)
        assert chunk is not None
        log.truncate_to(Offset(2))
        fill(log, 2, first=7)
        assert not reader.accept(chunk, generation=log.generation)
        assert rows(chunk) == fill_rows(range(5)), "it is intact all the same"
        assert reader.position == 0
        assert read_all(reader, publish(log)) == [*fill_rows(range(2)), *enumerate(values_of(range(7, 9)), 2)]

    def test_beyond_the_new_end(self, log: Log, keep: bool) -> None:
        fill(log, 5)
        reader = reader_of(log, keep_chunks=keep)
        read_all(reader, publish(log))
        log.truncate_to(Offset(2))
        with pytest.raises(KafkaError, match=r"offset 5 is not in \[0, 2\]"):
            reader.read(publish(log))

    def test_a_segment_newer_than_the_snapshot(self, log: Log, keep: bool) -> None:
        fill(log, 5)
        page = publish(log)
        log.truncate_to(Offset(2))
        reader = reader_of(log, keep_chunks=keep)
        assert reader.read(page) is None
        assert read_all(reader, publish(log)) == fill_rows(range(2))

    def test_only_the_last_chunk_is_accepted_and_only_once(self, log: Log, keep: bool) -> None:
        fill(log, 5)
        reader, page = reader_of(log, keep_chunks=keep), publish(log)
        first = reader.read(page, max_bytes=1)
        again = reader.read(page, max_bytes=1)
        assert first is not None
        assert again is not None
        assert rows(first) == rows(again)
        assert not reader.accept(first, generation=0)
        assert reader.accept(again, generation=0)
        assert not reader.accept(again, generation=0)
        assert reader.position == 1
        third = reader.read(page)
        assert third is not None
        reader.seek(Offset(3))
        assert not reader.accept(third, generation=0)
        assert reader.position == 3


def values_of(numbers: range) -> list[bytes]:
    return [b"%0100d" % number for number in numbers]


def fill_rows(numbers: range) -> list[tuple[int, bytes]]:
    return list(enumerate(values_of(numbers), numbers.start))


class TestDamage:
    """The file is not what the page says: that is an error, never a wrong row and never an end of the process."""

    @pytest.mark.parametrize("at", [*range(8, 12), *range(16, 61), 100])
    def test_a_flipped_byte(self, log: Log, keep: bool, at: int) -> None:
        """The first 8 bytes are the offset, the next but 4 the leader epoch, which no checksum covers."""
        rows_before = fill(log, 3)
        size = len(batch(rows_before[0][1]))
        page = publish(log)
        self.damage(log, size + at)
        reader = reader_of(log, keep_chunks=keep)
        chunk = reader.read(page, max_bytes=1)
        assert chunk is not None
        assert reader.accept(chunk, generation=0)
        with pytest.raises(KafkaError) as refused:
            reader.read(page)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE

    def test_a_flipped_byte_without_checksums(self, log: Log, keep: bool) -> None:
        fill(log, 3)
        self.damage(log, 100)
        assert read_all(reader_of(log, check_crc=False, keep_chunks=keep), publish(log))[:1] != fill_rows(range(1))

    @pytest.mark.parametrize("offset", [-1, 0, 3, 1 << 60])
    def test_a_batch_with_a_wrong_offset(self, log: Log, keep: bool, offset: int) -> None:
        fill(log, 3)
        page = publish(log)
        place = log.locate(Offset(1), upto=log.log_end_offset)
        with open(place.path, "r+b") as file:
            file.seek(place.position)
            file.write(offset.to_bytes(8, signed=True))
        if offset == 3:  # as if records were missing: it is found out where it passes the watermark
            page = page._replace(high_watermark=3)
        with pytest.raises(KafkaError) as refused:
            read_all(reader_of(log, keep_chunks=keep), page)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE

    def test_a_batch_that_overlaps_the_previous_one(self, log: Log, keep: bool) -> None:
        append(log, batch(b"a"))
        append(log, batch(b"b", b"c", b"d"))
        page = publish(log)
        with open(log.locate(Offset(1), upto=Offset(4)).path, "r+b") as file:
            file.seek(len(batch(b"a")))
            file.write(bytes(8))
        with pytest.raises(KafkaError) as refused:
            read_all(reader_of(log, keep_chunks=keep), page)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("missing", [1, 61, 400])
    def test_a_file_that_is_too_short(self, log: Log, keep: bool, missing: int) -> None:
        fill(log, 5)
        page = publish(log)
        longer = page._replace(readable_position=page.readable_position + missing, high_watermark=9)
        with pytest.raises(KafkaError) as refused:
            read_all(reader_of(log, keep_chunks=keep), longer)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_disk_failure(self, log: Log, keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        fill(log, 5)
        reader = reader_of(log, keep_chunks=keep)
        with monkeypatch.context() as patch:
            patch.setattr(mmap, "mmap", fail)
            patch.setattr(os, "pread", fail)
            with pytest.raises(KafkaError, match="Input/output error") as refused:
                LocalLog("t-0", lambda _: SegmentFile(os.dup(0), 0, 0, 0), Offset(0), keep_chunks=keep).read(
                    publish(log)
                )
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert read_all(reader, publish(log)) == fill_rows(range(5))

    def test_zeros_in_place_of_a_batch(self, log: Log, keep: bool) -> None:
        fill(log, 5)
        page = publish(log)
        with open(log.locate(Offset(0), upto=Offset(5)).path, "r+b") as file:
            file.truncate(page.readable_position + 100)
        for more in (1, 60, 61, 100):
            longer = page._replace(readable_position=page.readable_position + more, high_watermark=9)
            with pytest.raises(KafkaError) as refused:
                read_all(reader_of(log, keep_chunks=keep), longer)
            assert refused.value.code == ErrorCode.CORRUPT_MESSAGE

    def damage(self, log: Log, at: int) -> None:
        with open(log.locate(Offset(0), upto=log.log_end_offset).path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x41]))


class TestResources:
    def test_chunks_outlive_reader_and_file(self, log: Log, keep: bool, tmp_path: Path) -> None:
        expected = fill(log, 60)
        files, maps = open_within(tmp_path), mapped_within(tmp_path)
        reader, page = reader_of(log, keep_chunks=keep), publish(log)
        chunks = []
        while (chunk := reader.read(page, max_bytes=400)) is not None:
            chunks.append(chunk)
            assert reader.accept(chunk, generation=0)
        reader.close()
        reader.close()
        log.settings = LogSettings(retention_ms=0)
        log.apply_retention(NOW + 10**9)
        assert [row for chunk in chunks for row in rows(chunk)] == expected
        assert log.segment_count == 1
        del chunks, chunk
        assert open_within(tmp_path) <= files
        assert mapped_within(tmp_path) == maps

    def test_each_reader_has_one_file_and_one_mapping(self, log: Log, keep: bool, tmp_path: Path) -> None:
        fill(log, 60)
        files, maps = open_within(tmp_path), mapped_within(tmp_path)
        readers = [reader_of(log, keep_chunks=keep) for _ in range(5)]
        page = publish(log)
        while True:
            chunks = [reader.read(page, max_bytes=400) for reader in readers]
            assert open_within(tmp_path) <= files + 2 * len(readers)  # a mapping keeps a descriptor of its own
            assert mapped_within(tmp_path) <= maps + len(readers)
            if chunks[0] is None:
                break
            for reader, chunk in zip(readers, chunks, strict=True):
                assert chunk is not None
                assert reader.accept(chunk, generation=0)
            del chunk
        for reader in readers:
            reader.close()
        del chunks
        assert (open_within(tmp_path), mapped_within(tmp_path)) == (files, maps)

    def test_failed_reads_hold_nothing(self, log: Log, keep: bool, tmp_path: Path) -> None:
        fill(log, 10)
        page = publish(log)
        reader = reader_of(log, keep_chunks=keep)
        wrong = page._replace(readable_position=page.readable_position + 1)
        reader.read(page)
        files = open_within(tmp_path)
        for _ in range(20):
            reader.seek(Offset(0))
            with pytest.raises(KafkaError):
                reader.read(wrong)
        assert open_within(tmp_path) <= files
        reader.close()

    def test_no_more_than_the_readable_part_is_mapped(self, log: Log, keep: bool) -> None:
        fill(log, 10)
        page = publish(log, 7)
        chunk = reader_of(log, keep_chunks=keep).read(page)
        assert chunk is not None
        held = memoryview(chunk.records.obj)
        assert len(held) == page.readable_position < log.size_bytes
        held.release()

    def test_records_are_read_only(self, log: Log, keep: bool) -> None:
        fill(log, 10)
        for size in (1, 10_000):
            chunk = reader_of(log, keep_chunks=keep).read(publish(log), max_bytes=size)
            assert chunk is not None
            assert chunk.records.readonly


@contextmanager
def another_process_maps(path: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has mapped the whole file; at the end of the block it reads all of it, and says what it was."""
    program = (
        "import mmap, sys; from crc32c import crc32c\n"
        "file = open(sys.argv[1], 'rb'); mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); file.close()\n"
        "print('mapped', flush=True); sys.stdin.read(); print(len(mapped), crc32c(mapped))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "mapped\n"
        before = Path(path).read_bytes()
        yield process
        process.stdin.close()
        said = process.stdout.read()
    assert process.returncode == 0, "it died of the pages that the file has lost"
    assert said.split() == [str(len(before)), str(crc32c(before))]


class TestTruncatedFiles:
    """Mapped data stays valid if the log is truncated below the offset up to which it was readable."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        log = open_real_log(tmp_path)
        for number in range(40):
            append(log, batch(b"%d" % number * 1000))
        return log

    def test_a_truncation(self, log: Log) -> None:
        publish(log)
        with another_process_maps(log.locate(Offset(0), upto=Offset(40)).path):
            log.truncate_to(Offset(3))
            for number in range(40):
                append(log, batch(b"%d" % -number * 1000))
        assert log.log_end_offset == 43

    def test_a_recovery_that_finds_an_invalid_batch(self, log: Log, tmp_path: Path) -> None:
        publish(log)
        place = log.locate(Offset(3), upto=Offset(40))
        with open(place.path, "r+b") as file:
            file.seek(place.position + 100)
            file.write(b"!")
        log.abandon()
        with another_process_maps(place.path):
            recovered = open_real_log(tmp_path)
            assert recovered.log_end_offset == 3
            append(recovered, batch(b"x" * 5000))
        names = sorted(path.name for path in Path(place.path).parent.iterdir())
        assert not [name for name in names if name.endswith(".tmp")]

    def test_unpublished_records_are_truncated_in_place(self, log: Log) -> None:
        """That is cheaper, and the readers never looked there."""
        publish(log, 5)
        log._publication = Publication(log._segments, Offset(5))
        before = Path(log.locate(Offset(0), upto=Offset(40)).path).stat().st_ino
        log.truncate_to(Offset(10))
        log.truncate_to(Offset(5))
        after = Path(log.locate(Offset(0), upto=Offset(5)).path).stat().st_ino
        assert before == after
        log.truncate_to(Offset(4))
        assert Path(log.locate(Offset(0), upto=Offset(4)).path).stat().st_ino != after

    def test_records_published_by_an_earlier_process_are_not_truncated_in_place(self, log: Log, tmp_path: Path) -> None:
        log.close()
        reopened = open_real_log(tmp_path, clean=True)
        before = Path(reopened.locate(Offset(0), upto=Offset(40)).path).stat().st_ino
        reopened.truncate_to(Offset(39))
        assert Path(reopened.locate(Offset(0), upto=Offset(39)).path).stat().st_ino != before


@contextmanager
def expected_out_of_range(*pages: PageSnapshot, position: int) -> Iterator[None]:
    """A refusal in the block is right if one of the pages leaves the position out."""
    try:
        yield
    except KafkaError as refused:
        if refused.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        if all(page.log_start_offset <= position <= page.high_watermark for page in pages):
            raise


class ReadersAgainstLog(RuleBasedStateMachine):
    """`values` is what was written last at each offset; a snapshot of the page may be older than the log."""

    @initialize(segment_bytes=st.sampled_from([400, 900, 5000]), piece_bytes=st.sampled_from([1, 200, 1 << 20]))
    def begin(self, segment_bytes: int, piece_bytes: int) -> None:
        self.folder = TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(local_log, "KEPT_PIECE_BYTES_MAX", piece_bytes)
        self.patch.setattr(local_log, "PIECE_BYTES_MIN", piece_bytes)
        self.settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=150, retention_ms=RETENTION_MS)
        self.log = open_real_log(Path(self.folder.name), self.settings)
        self.now_ms = NOW
        self.values: dict[int, bytes] = {}
        self.ends = [0]
        """Offsets between batches, where a watermark may be."""
        self.high_watermark = 0
        self.readers = [LocalLog("t-0", self.locate, Offset(0), keep_chunks=keep) for keep in (True, False)]
        self.held: list[tuple[Chunk, bytes]] = []
        self.written = 0
        self.publish()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.patch.undo()
            close_all()
            for reader in self.readers:
                reader.close()
            self.folder.cleanup()

    def locate(self, offset: int) -> SegmentFile:
        return locate(self.log, offset, upto=self.high_watermark)

    def publish(self) -> None:
        self.page = publish(self.log, self.high_watermark)

    def note(self, first: int, values: list[bytes]) -> None:
        for offset in [offset for offset in self.values if offset >= first]:
            del self.values[offset]
        self.values.update(enumerate(values, first))
        self.ends.append(first + len(values))

    # The broker

    @rule(count=st.integers(1, 4), size=st.sampled_from([1, 20, 60]), all_readable=st.booleans())
    def append(self, count: int, size: int, all_readable: bool) -> None:
        self.written += count
        values = [b"%0*d" % (size, self.written - number) for number in range(count)]
        first = int(self.log.log_end_offset)
        append(self.log, batch(*values, timestamp_ms=self.now_ms), now_ms=self.now_ms)
        self.note(first, values)
        if all_readable:
            self.high_watermark = int(self.log.log_end_offset)
        self.publish()

    @rule(gap=st.integers(1, 5))
    def append_behind_a_gap(self, gap: int) -> None:
        self.written += 1
        value = b"%d" % self.written
        first = self.log.log_end_offset + gap
        part = batch(value, timestamp_ms=self.now_ms)
        patch_offset_and_epoch(part, 0, parse_header(part), first, 3)
        self.log.append_as_follower(memoryview(part), now_ms=self.now_ms)
        self.note(first, [value])
        self.high_watermark = int(self.log.log_end_offset)
        self.publish()

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self.publish()

    @rule(step=st.integers(1, 3))
    def raise_the_watermark(self, step: int) -> None:
        above = sorted(end for end in self.ends if end > self.high_watermark)
        self.high_watermark = above[min(step, len(above)) - 1] if above else self.high_watermark
        self.publish()

    @rule(ms=st.integers(1, 800))
    def wait_and_retain(self, ms: int) -> None:
        self.now_ms += ms
        self.log.apply_retention(self.now_ms, upto=Offset(self.high_watermark))
        self.publish()

    @rule(at=st.integers(0, 1 << 16))
    def delete_records(self, at: int) -> None:
        span = self.high_watermark - self.log.log_start_offset
        self.log.delete_records_before(Offset(self.log.log_start_offset + at % (span + 1)))
        self.publish()

    @precondition(lambda self: self.log.log_end_offset > self.log.log_start_offset)
    @rule(back=st.integers(0, 5))
    def truncate(self, back: int) -> None:
        """Below the watermark, too: as after an unclean election."""
        ends = [end for end in sorted(set(self.ends)) if self.log.log_start_offset <= end < self.log.log_end_offset]
        if not ends:
            return
        self.log.truncate_to(Offset(ends[-min(back + 1, len(ends))]))
        end = int(self.log.log_end_offset)
        self.values = {offset: value for offset, value in self.values.items() if offset < end}
        self.ends = [known for known in self.ends if known <= end] + [end]
        self.high_watermark = min(self.high_watermark, end)
        self.publish()

    @rule(clean=st.booleans(), torn_bytes=st.integers(0, 200))
    def start_anew(self, clean: bool, torn_bytes: int) -> None:
        """As a broker stopped or killed; what it was about to write may be there in part."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if clean:
            self.log.close()
        else:
            torn = self.log.locate(end, upto=end).path
            self.log.abandon()
            with open(torn, "ab") as file:
                file.write(bytes(batch(b"torn" * 100))[:torn_bytes])
        self.log = open_real_log(
            Path(self.folder.name), self.settings, clean=clean, log_start_offset=start, now_ms=self.now_ms
        )
        assert self.log.log_end_offset == end
        for reader in self.readers:  # their connection was lost
            reader.seek(reader.position)
        self.publish()

    def happens(self, what: str) -> None:
        match what:
            case "append":
                self.append(count=2, size=20, all_readable=True)
            case "truncate":
                self.truncate(back=3)
            case "roll":
                self.roll()
            case "delete":
                self.delete_records(at=3)

    # The readers

    @rule(
        which=st.integers(0, 1),
        max_bytes=st.sampled_from([1, 300, 5000]),
        changes=st.sampled_from(["nothing", "append", "truncate", "roll"]),
        hold=st.booleans(),
    )
    def read(self, which: int, max_bytes: int, changes: str, hold: bool) -> None:
        reader, page = self.readers[which], self.page
        start = reader.position
        if not page.log_start_offset <= start <= page.high_watermark:
            with pytest.raises(KafkaError) as refused:
                reader.read(page)
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
            reader.seek(Offset(page.log_start_offset))
            return
        chunk = reader.read(page, max_bytes=max_bytes)
        if chunk is None:
            assert start == page.high_watermark, "there is something to be read, and nothing came"
            return
        expected = [row for row in sorted(self.values.items()) if start <= row[0] < chunk.next_offset]
        assert rows(chunk) == expected
        assert start < chunk.next_offset <= page.high_watermark
        if changes != "nothing":
            self.happens(changes)
        if reader.accept(chunk, generation=self.page.generation):
            assert self.page.generation == page.generation
            assert reader.position == chunk.next_offset
        else:
            assert self.page.generation != page.generation
            assert reader.position == start
        if hold:
            self.held = [*self.held[-4:], (chunk, bytes(chunk.records))]

    @rule(which=st.integers(0, 1), at=st.integers(0, 1 << 16))
    def seek(self, which: int, at: int) -> None:
        span = self.page.high_watermark - self.page.log_start_offset
        self.readers[which].seek(Offset(self.page.log_start_offset + at % (span + 1)))

    @rule(which=st.integers(0, 1), changes=st.sampled_from(["append", "truncate", "roll", "delete"]))
    def read_by_an_old_snapshot(self, which: int, changes: str) -> None:
        """The broker went on between the look at the page and the read: what comes is right, or nothing comes."""
        reader, page = self.readers[which], self.page
        self.happens(changes)
        chunk = None
        with expected_out_of_range(self.page, page, position=reader.position):
            chunk = reader.read(page)
        if chunk is not None and reader.accept(chunk, generation=self.page.generation):
            expected = [row for row in sorted(self.values.items()) if chunk.start <= row[0] < chunk.next_offset]
            assert rows(chunk) == expected
            assert chunk.next_offset <= page.high_watermark

    @invariant()
    def what_is_held_stays_as_it_was(self) -> None:
        for chunk, before in getattr(self, "held", ()):
            assert chunk.records == before

    @invariant()
    def published_is_readable(self) -> None:
        """A reader that begins now sees everything between beginning and watermark, in order."""
        if not hasattr(self, "log"):
            return
        reader = LocalLog("t-0", self.locate, Offset(self.page.log_start_offset))
        found = read_all(reader, self.page)
        reader.close()
        start, end = self.page.log_start_offset, self.page.high_watermark
        assert found == [row for row in sorted(self.values.items()) if start <= row[0] < end]
        assert all(one[0] < other[0] for one, other in pairwise(found))


ReadersAgainstLog.TestCase.settings = settings(
    max_examples=by_form(120, quick=50, long=5000),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestReadersAgainstLog = ReadersAgainstLog.TestCase
