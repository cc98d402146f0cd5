"""One segment: a `.log` file of whole batches, and its two indexes. Knows nothing of epochs, producers or settings.

Raises OSError as the disk does; the log above decides what that means.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.logstore import time_index
from raylog.logstore.disk import Disk, FileHandle
from raylog.logstore.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from raylog.logstore.offset_index import OffsetIndex
from raylog.logstore.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from raylog.logstore.time_index import TimeIndex
from raylog.protocol.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    crc_is_valid,
    parse_header,
)
from raylog.protocol.records.reader import read_records

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""An index entry has room for an offset so far from the base."""

_SCAN_BYTES = 4096
"""Read at once when only headers are wanted."""
_RECOVERY_BYTES = 1 << 20
"""Read at once when whole batches are checked; a larger batch is read by itself."""
_HINTS_MAX = 16
"""Sequential readers whose place is remembered, so that the next read needs no search."""

_PEEK = struct.Struct(">qi11xi")
"""Base offset, batch length, last offset delta: the first 27 bytes of a batch."""


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name for a file that begins at `offset`: 20 digits."""
    return f"{offset:020d}{suffix}"


class Segment:
    """One segment, open from creation or `open` until `close` or `delete`.

    Invariant: `size_bytes` ends at a batch boundary, and the file holds nothing behind it, except after a failed
    append until `cut_back`. The indexes in memory are complete for the bytes below `size_bytes`, or not loaded.
    """

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_first_timestamp",
        "_handle",
        "_hints",
        "_offset_index",
        "_stem",
        "_time_index",
        "base_offset",
        "created_ms",
        "dirty",
        "max_timestamp",
        "next_offset",
        "offset_of_max_timestamp",
        "size_bytes",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, handle: FileHandle, *, now_ms: int) -> None:
        self._disk = disk
        self._stem = f"{directory}/{base_offset:020d}"
        self._handle = handle
        self.base_offset = base_offset
        self.next_offset = base_offset
        """One past the last offset; for a closed segment, the base of the next one."""
        self.size_bytes = 0
        self.created_ms = now_ms
        """When it was created or opened: stands in for the records' time where they have none."""
        self.dirty = False
        """Whether it holds what no fsync covers."""
        self.max_timestamp: int | None = NO_TIMESTAMP_MS
        """Largest timestamp so far, -1 without one; None: not read yet (`largest_timestamp`)."""
        self.offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._offset_index: OffsetIndex | None = OffsetIndex()
        self._time_index: TimeIndex | None = TimeIndex()
        self._hints: dict[int, int] = {}

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int) -> Segment:
        """A new, empty file. Remains of files of that name, left by a failed attempt, are removed first."""
        for suffix in SEGMENT_SUFFIXES:
            path = f"{directory}/{file_name(base_offset, suffix)}"
            if disk.exists(path):
                disk.unlink(path)
        handle = disk.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", create=True)
        return cls(disk, directory, base_offset, handle, now_ms=now_ms)

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int) -> Segment:
        """An existing file; nothing of it is read yet. `next_offset` is for the caller to set, or `load` finds it."""
        handle = disk.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}")
        segment = cls(disk, directory, base_offset, handle, now_ms=now_ms)
        segment.size_bytes = disk.size(handle)
        segment.max_timestamp = None
        segment._offset_index = segment._time_index = None
        return segment

    # Appending

    def append(
        self, record_set: memoryview | bytes, batches: Sequence[tuple[int, int, int]], *, index_interval: int
    ) -> None:
        """Writes the record set behind all others, in one write, then notes it. Unchanged in memory when it raises.

        `batches`, never none: (position in the record set, last offset, largest timestamp) of each.
        """
        position = self.size_bytes
        self._disk.pwrite(self._handle, record_set, position)
        since = self._bytes_since_index
        previous = 0
        last_offset = self.next_offset
        for at, last_offset, max_timestamp in batches:
            since += at - previous
            previous = at
            since = self._note(position + at, last_offset, max_timestamp, since, index_interval)
        self._bytes_since_index = since + len(record_set) - previous
        self.size_bytes = position + len(record_set)
        self.next_offset = last_offset + 1

    def cut_back(self) -> None:
        """After a failed append: removes what it may have written, and makes sure that it cannot come back."""
        self._disk.truncate(self._handle, self.size_bytes)
        self._disk.fsync(self._handle)

    def index_is_full(self, segment_index_bytes: int) -> bool:
        """One entry of the time index is kept free for the last timestamp."""
        offsets, times = self._offset_index, self._time_index
        if offsets is None or times is None:
            offsets, times = self._indexes()
        if len(times) >= segment_index_bytes // TIME_ENTRY_SIZE - 1:
            return True
        return len(offsets) >= segment_index_bytes // OFFSET_ENTRY_SIZE

    def first_timestamp(self) -> int:
        """Timestamp of the first batch, by which age is told; -1 when there is none."""
        if self._first_timestamp is None and self.size_bytes:
            self._first_timestamp = parse_header(self._disk.pread(self._handle, HEADER_SIZE, 0)).max_timestamp
        return NO_TIMESTAMP_MS if self._first_timestamp is None else self._first_timestamp

    def largest_timestamp(self) -> int:
        """Of all records, -1 without one. Of a closed segment only the last entry of its time index is read."""
        if self.max_timestamp is None:
            self._read_last_time_entry()
        return NO_TIMESTAMP_MS if self.max_timestamp is None else self.max_timestamp

    # Reading

    def read(
        self, start: int, *, max_bytes: int, upto: int, at_least_one_batch: bool
    ) -> tuple[bytes | memoryview, int] | None:
        """(whole batches from the one that holds `start`, offset that follows them).

        Only batches that end below `upto`; at most `max_bytes`, but one batch at least where that is asked for. Empty
        when the first batch is excluded by either bound; None when no batch here reaches `start`.
        """
        position = self._hints.pop(start, -1)
        if position < 0:
            position = self._position_of(start)
        left = self.size_bytes - position
        if left <= 0:
            return None
        peek = self._disk.pread(self._handle, _PEEK.size, position)
        base_offset, length, delta = _peek(peek, 0)
        first_bytes = length + LOG_OVERHEAD
        if length < BATCH_LENGTH_MIN or first_bytes > left:
            raise self._corrupt(position)
        if base_offset + delta >= upto or (first_bytes > max_bytes and not at_least_one_batch):
            return b"", start
        want = min(left, max(max_bytes, first_bytes))
        data = self._disk.pread(self._handle, want, position)
        if want == left and upto >= self.next_offset:
            end, next_offset = want, self.next_offset
        else:
            end, next_offset = _whole_batches(data, upto)
        if len(data) < want or end == 0:
            raise self._corrupt(position)
        if len(self._hints) >= _HINTS_MAX:
            del self._hints[next(iter(self._hints))]
        self._hints[next_offset] = position + end
        return (data if end == len(data) else memoryview(data)[:end]), next_offset

    def offset_for_timestamp(self, timestamp_ms: int, *, start: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record from `start` on that is not older, None without one."""
        offsets, times = self._indexes()
        relative = max(times.offset_before(timestamp_ms), start - self.base_offset)
        for position, header in self.scan(offsets.entry_before(relative)[1]):
            if header.max_timestamp < timestamp_ms or header.next_offset <= start:
                continue
            found = self._search_batch(position, header, timestamp_ms, start)
            if found is not None:
                return found
        return None

    def scan(self, position: int = 0, *, whole: bool = False) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) from a batch boundary on, to the end or to the first batch that cannot be.

        With `whole` each batch is read and its checksum verified. The caller compares the end of the last one with
        `size_bytes`.
        """
        chunk_bytes = _RECOVERY_BYTES if whole else _SCAN_BYTES
        chunk, chunk_at = b"", 0
        while self.size_bytes - position >= HEADER_SIZE:
            at = position - chunk_at
            if len(chunk) - at < HEADER_SIZE:
                chunk, chunk_at, at = self._disk.pread(self._handle, chunk_bytes, position), position, 0
            try:
                header = parse_header(chunk, at)
            except KafkaError:
                return
            size_bytes = header.batch_length + LOG_OVERHEAD
            if size_bytes > self.size_bytes - position:
                return
            if whole:
                if len(chunk) - at < size_bytes:
                    chunk = self._disk.pread(self._handle, max(size_bytes, chunk_bytes), position)
                    chunk_at, at = position, 0
                if len(chunk) - at < size_bytes or not crc_is_valid(chunk, at, header):
                    return
            yield position, header
            position += size_bytes

    def headers_before(self, offset: int, *, budget_bytes: int) -> list[BatchHeader]:
        """Headers of the batches below `offset` that lie within about so many bytes of its end, oldest first."""
        offsets, _ = self._indexes()
        end = self.size_bytes if offset >= self.next_offset else self._position_of(offset)
        position = offsets.position_floor(max(end - budget_bytes, 0))
        return [header for _, header in self.scan(position) if header.next_offset <= offset]

    # Opening and recovering

    def load(self, *, index_interval: int) -> bool:
        """Finds the end of a segment that will be appended to, by its indexes; False when file or indexes are wrong."""
        if not self._load_indexes():
            return False
        offsets, times = self._indexes()
        if (self.size_bytes > 2 * index_interval and not len(offsets)) or (len(offsets) and not len(times)):
            return self.rebuild(index_interval=index_interval)  # they lost their entries: not wrong, but useless
        start = offsets.last_position
        last = times.last
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP_MS, self.base_offset
        if last is not None:
            self.max_timestamp, self.offset_of_max_timestamp = last[0], self.base_offset + last[1]
        self._bytes_since_index = 0
        return self._note_from(start, index_interval)

    def rebuild(self, *, index_interval: int) -> bool:
        """Indexes and timestamps anew from the headers. False when the file does not end with a whole batch."""
        self._reset()
        return self._note_from(0, index_interval)

    def recover(self, *, next_offset: int, index_interval: int, accept: Callable[[BatchHeader], None]) -> int:
        """Checks every batch and cuts the file at the first bad one; the number of bytes cut off.

        Bad is: malformed, cut short, wrong checksum, or a base offset below what should follow (`next_offset` for the
        first one). `accept` is told of each good batch in order. The indexes are made anew.
        """
        self._reset()
        self.next_offset = max(next_offset, self.base_offset)
        end = 0
        for position, header in self.scan(whole=True):
            below = header.base_offset < self.next_offset
            if below or header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                break
            self._note_header(position, header, index_interval)
            accept(header)
            end = position + header.size_bytes
        cut = self.size_bytes - end
        if cut:
            self.size_bytes = end
            self.cut_back()
        self.dirty = True
        return cut

    def truncate_to(self, offset: int, *, index_interval: int) -> None:
        """Removes the first batch that reaches `offset` and all behind it, for good."""
        self.size_bytes = self._position_of(offset)
        self.cut_back()
        self.rebuild(index_interval=index_interval)

    # Closing

    def write_indexes(self, *, final: bool, sync: bool = False) -> None:
        """Brings the index files up to date; `final` adds the last timestamp, as is due when a segment is closed."""
        if self._offset_index is None or self._time_index is None:
            return  # not loaded, so not changed
        if final and self.max_timestamp is not None and self.max_timestamp >= 0:
            self._time_index.add(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
        offsets, times = self._offset_index, self._time_index
        self._write_index(OFFSET_INDEX_SUFFIX, offsets, OFFSET_ENTRY_SIZE, sync=sync)
        self._write_index(TIME_INDEX_SUFFIX, times, TIME_ENTRY_SIZE, sync=sync)

    def flush(self, *, closed: bool) -> None:
        """fsync of the data, and of the indexes when nothing will be appended any more."""
        self._disk.fsync(self._handle)
        if closed:
            self.write_indexes(final=True, sync=True)
        self.dirty = False

    def close(self) -> None:
        self._disk.close(self._handle)

    def delete(self) -> None:
        """Closes it and removes its files; the `.log` last, so that a crash leaves a whole segment or nothing."""
        self.close()
        for suffix in reversed(SEGMENT_SUFFIXES):
            if self._disk.exists(self._stem + suffix):
                self._disk.unlink(self._stem + suffix)

    # Inner parts

    def _note(self, position: int, last_offset: int, max_timestamp: int, since: int, interval: int) -> int:
        """Takes one batch into timestamps and indexes; bytes since the last index entry before that batch."""
        if max_timestamp > (NO_TIMESTAMP_MS if self.max_timestamp is None else self.max_timestamp):
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position == 0:
            self._first_timestamp = max_timestamp
        if since <= interval:
            return since
        offsets, times = self._offset_index, self._time_index
        assert offsets is not None
        assert times is not None
        offsets.add(last_offset - self.base_offset, position)
        if self.max_timestamp is not None and self.max_timestamp >= 0:
            times.add(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
        return 0

    def _note_header(self, position: int, header: BatchHeader, interval: int) -> None:
        since = self._note(position, header.last_offset, header.max_timestamp, self._bytes_since_index, interval)
        self._bytes_since_index = since + header.size_bytes
        self.next_offset = header.next_offset

    def _note_from(self, position: int, interval: int) -> bool:
        """Takes all batches from `position` on; whether they reach the end of the file exactly."""
        end = position
        for at, header in self.scan(position):
            self._note_header(at, header, interval)
            end = at + header.size_bytes
        return end == self.size_bytes

    def _reset(self) -> None:
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP_MS, self.base_offset
        self._bytes_since_index = 0
        self._first_timestamp = None
        self.next_offset = self.base_offset
        self._hints.clear()

    def _indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both, read from their files at the first use and made anew when those are missing or wrong."""
        if self._offset_index is None or self._time_index is None:
            self._load_or_rebuild()
        offsets, times = self._offset_index, self._time_index
        assert offsets is not None
        assert times is not None
        return offsets, times

    def _load_or_rebuild(self, *, force: bool = False) -> None:
        if not force and self._load_indexes():
            return
        next_offset = self.next_offset  # of a closed segment: known from its successor
        self.rebuild(index_interval=_SCAN_BYTES)
        self.next_offset = max(next_offset, self.next_offset)
        self.write_indexes(final=True)

    def _load_indexes(self) -> bool:
        try:
            data = self._disk.read_file(self._stem + OFFSET_INDEX_SUFFIX)
            offsets = OffsetIndex.decode(data, log_size=self.size_bytes)
            times = TimeIndex.decode(self._disk.read_file(self._stem + TIME_INDEX_SUFFIX))
        except (FileNotFoundError, ValueError):
            return False
        self._offset_index, self._time_index = offsets, times
        return True

    def _read_last_time_entry(self) -> None:
        path = self._stem + TIME_INDEX_SUFFIX
        try:
            handle = self._disk.open(path)
        except FileNotFoundError:
            self._load_or_rebuild(force=True)
            return
        try:
            size = self._disk.size(handle)
            entry = self._disk.pread(handle, TIME_ENTRY_SIZE, max(size - TIME_ENTRY_SIZE, 0))
        finally:
            self._disk.close(handle)
        if size % TIME_ENTRY_SIZE or not entry:
            self._load_or_rebuild(force=True)
            return
        timestamp, relative = time_index.decode_entry(entry)
        self.max_timestamp, self.offset_of_max_timestamp = timestamp, self.base_offset + relative

    def _position_of(self, offset: int) -> int:
        """Where the first batch begins that reaches `offset`; `size_bytes` when none does.

        The batch that an index entry points at must not lie above the entry: a wrong index is thus found out and made
        anew, and nothing is skipped.
        """
        relative = offset - self.base_offset
        end = 0
        for attempt in range(2):
            indexed, position = self._indexes()[0].entry_before(relative)
            end = position
            sound = True
            for at, header in self.scan(position):
                if at == position != 0 and header.base_offset > self.base_offset + indexed:
                    sound = False
                    break
                if header.last_offset >= offset:
                    return at
                end = at + header.size_bytes
            if sound and end == self.size_bytes:
                return end
            if attempt == 0:
                self._load_or_rebuild(force=True)
        raise self._corrupt(end)

    def _search_batch(
        self, position: int, header: BatchHeader, timestamp_ms: int, start: int
    ) -> tuple[int, int, int] | None:
        batch = self._disk.pread(self._handle, header.size_bytes, position)
        try:
            records = read_records(batch, 0, header)
        except KafkaError:
            # A client may store records that do not decode under a valid checksum. The batch's own words must do.
            return max(header.base_offset, start), header.max_timestamp, header.partition_leader_epoch
        for record in records:
            if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                return record.offset, record.timestamp_ms, header.partition_leader_epoch
        return None

    def _write_index(self, suffix: str, index: OffsetIndex | TimeIndex, entry_size: int, *, sync: bool) -> None:
        path = self._stem + suffix
        handle = self._disk.open(path, create=not self._disk.exists(path))
        try:
            size = index.written * entry_size
            if self._disk.size(handle) != size:
                self._disk.truncate(handle, size)
            if index.written < len(index):
                self._disk.pwrite(handle, index.encode_from(index.written), size)
                index.written = len(index)
            if sync:
                self._disk.fsync(handle)
        finally:
            self._disk.close(handle)

    def _corrupt(self, position: int) -> KafkaError:
        what = f"{self._stem}{LOG_SUFFIX}: no whole batch at position {position}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, what)


def _peek(data: bytes, position: int) -> tuple[int, int, int]:
    """(base offset, batch length, last offset delta); a length of -1 when too few bytes are there."""
    if len(data) - position < _PEEK.size:
        return 0, -1, 0
    base_offset, length, delta = _PEEK.unpack_from(data, position)
    return base_offset, length, delta


def _whole_batches(data: bytes, upto: int) -> tuple[int, int]:
    """(where the last whole batch below `upto` ends, offset that follows it)."""
    unpack = _PEEK.unpack_from
    size = len(data)
    end = next_offset = 0
    while size - end >= HEADER_SIZE:
        base_offset, length, delta = unpack(data, end)
        following = end + length + LOG_OVERHEAD
        if length < BATCH_LENGTH_MIN or following > size or base_offset + delta >= upto:
            break
        end, next_offset = following, base_offset + delta + 1
    return end, next_offset
