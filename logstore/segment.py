"""One segment: a `.log` file of complete batches and its indexes. It has no state of epochs or producers.

Methods raise the OSErrors of the disk, which the log handles.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.logstore.batch_scan import PEEK_SIZE, describe_missing_batch, peek, scan_file, whole_batches
from raylog.logstore.checkpoint import TEMPORARY_SUFFIX
from raylog.logstore.cold_reads import ColdRead, FileRange
from raylog.logstore.disk import SPACE_IS_SHORT, Disk, FileHandle, is_transient
from raylog.logstore.producer_state import AbortedTransaction
from raylog.logstore.segment_indexes import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    SegmentIndexes,
    read_last_time_entry,
)
from raylog.logstore.stored_batches import sound_batches
from raylog.logstore.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex, transaction_agrees
from raylog.protocol.records.batch import (
    BATCH_LENGTH_MIN,
    LOG_OVERHEAD,
    BatchHeader,
    verify_crc,
)
from raylog.protocol.records.markers import EndTransactionMarker, read_marker
from raylog.protocol.records.reader import Record, read_records

LOG_SUFFIX = ".log"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
"""Suffix of a file that is deleted after file.delete.delay.ms."""

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""The largest relative offset of an index entry."""

_REBUILT_INTERVAL_BYTES = 4096
"""index.interval.bytes when the indexes of a closed segment are rebuilt."""
_COPY_BYTES = 1 << 20
_NO_BATCH = "no complete batch"
_HINTS_MAX = 16
"""Number of sequential readers whose position is cached, so that their next read needs no search."""
RECENT_BYTES = 16 << 20
"""What this process has written last is taken to be in the page cache."""
_INDEX_BYTES_MAX = 10 << 20
"""Read-ahead limit of an index file: Kafka's default of segment.index.bytes."""
_DAMAGE_REPORTED_MAX = 16
"""Number of damaged positions per segment that are logged, each once."""

events = logging.getLogger("raylog.logstore")


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name of a file with the base offset `offset`: 20 digits."""
    return f"{offset:020d}{suffix}"


class Cut(NamedTuple):
    """The end of a segment that recovery has removed."""

    position: int
    """The new size of the file."""
    size_bytes: int
    why: str
    """The reason, one of a few fixed texts."""


class Segment:
    """One segment, from `create` or `open` to `close` or `delete`.

    Invariant: `size_bytes` is a batch boundary and the end of the file, except after a failed append until `cut_back`.
    The indexes in memory are complete for the bytes below `size_bytes`, or not loaded.
    """

    __slots__ = (
        "_bytes_since_index",
        "_damaged_at",
        "_disk",
        "_ending",
        "_first_timestamp",
        "_handle",
        "_hints",
        "_identity",
        "_index_asked_for",
        "_indexes",
        "_is_read_only",
        "_is_shared",
        "_log_ending",
        "_stem",
        "_unchecked_bytes",
        "base_offset",
        "created_ms",
        "dirty",
        "max_timestamp",
        "next_offset",
        "offset_of_max_timestamp",
        "size_bytes",
        "transactions",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        handle: FileHandle | None,
        *,
        now_ms: int,
        ending: str = "",
    ) -> None:
        self._disk = disk
        self._stem = f"{directory}/{base_offset:020d}"
        self._ending = ending
        """What the names of its indexes have after their suffixes."""
        self._log_ending = ending
        """The same of the `.log` file."""
        self._handle = handle
        """None while the file is closed, until it is used."""
        self._is_read_only = False
        """Whether it is open for reading only, since the file system is read-only."""
        self._is_shared = False
        """Whether the open file counts among those of the disk, which may close it. Not before the first `release`."""
        self._identity: tuple[int, int] | None = None
        """The identity of the file, so that no other one is used in its place."""
        self.base_offset = base_offset
        self.next_offset = base_offset
        """The last offset + 1; for a closed segment, the base offset of the next one."""
        self.size_bytes = 0
        self.created_ms = now_ms
        """When it was created or opened; used for records without timestamps."""
        self.dirty = False
        """Whether it contains unsynced data."""
        self.max_timestamp: int | None = NO_TIMESTAMP_MS
        """Largest timestamp so far, -1 if there is none; None if not read yet (`largest_timestamp`)."""
        self.offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._indexes: SegmentIndexes | None = SegmentIndexes(disk, self._stem, ending=ending)
        self._index_asked_for = False
        """Whether a read ahead of the index was asked for: the next one loads it."""
        self._hints: dict[int, int] = {}
        self._damaged_at: set[int] = set()
        """Damaged positions that have been logged."""
        self._unchecked_bytes = 0
        """The number of bytes at the start that an earlier process wrote and that were not verified since."""
        self.transactions: TransactionIndex | None = TransactionIndex(disk, self._stem, ending=ending)
        """None if not read yet, or if it is invalid and must be rebuilt from the log."""

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, ending: str = "") -> Segment:
        """Create an empty segment. Files left by a failed attempt are deleted first."""
        segment = cls(disk, directory, base_offset, None, now_ms=now_ms, ending=ending)
        for path in segment.paths():
            if disk.exists(path):
                disk.unlink(path)
        segment._handle = disk.open(segment.path, create=True)
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, log_ending: str = "") -> Segment:
        """Use an existing file without reading it. The caller sets `next_offset`, or calls `load`.

        With `log_ending` the name of the `.log` file ends so until `renamed` is called.
        """
        segment = cls(disk, directory, base_offset, None, now_ms=now_ms)
        segment._log_ending = log_ending
        status = disk.status(segment.path)
        segment.size_bytes, segment._identity = status.size_bytes, status.identity
        segment._unchecked_bytes = segment.size_bytes
        segment.max_timestamp = None
        segment._indexes = None
        segment.transactions = None
        return segment

    # Appending

    def append(
        self, record_set: memoryview | bytes, batches: Sequence[tuple[int, int, int]], *, index_interval: int
    ) -> None:
        """Append a record set in one write, then update the indexes. If it raises, memory is unchanged.

        `batches`, not empty: (position in the record set, last offset, largest timestamp) of each batch. Those that get
        no index entry may be missing, except the first, the last, and the first with the largest timestamp before each
        entry.
        """
        position = self.size_bytes
        self._disk.pwrite(self._file(writable=True), record_set, position)
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

    def check_end(self) -> None:
        """Raises OSError if another process has changed the size of the file: an append after a cut would leave a hole
        of zeros, and give the file the size that `check_file` expects."""
        self._check_size(self._disk.size(self._file(writable=True)))

    def cut_back(self) -> None:
        """Durably remove what a failed append may have written."""
        self._disk.truncate(self._file(writable=True), self.size_bytes)
        self._disk.fsync(self._file())

    def index_is_full(self, segment_index_bytes: int) -> bool:
        """Whether one of the indexes is full."""
        return (self._indexes or self._load_indexes()).is_full(segment_index_bytes)

    def first_timestamp(self) -> int:
        """Timestamp of the first batch, which determines the segment's age; -1 if there is none, or it is damaged."""
        if self._first_timestamp is None and self.size_bytes:
            first = next(self.scan(), None)
            self._first_timestamp = NO_TIMESTAMP_MS if first is None else first[1].max_timestamp
        return NO_TIMESTAMP_MS if self._first_timestamp is None else self._first_timestamp

    def largest_timestamp(self, *, certain: bool = False) -> int:
        """The largest timestamp of all records, -1 if there is none; for a closed segment from the last index entry.

        With `certain`, for deletions, the whole index must be valid and match the end of the data; else it is rebuilt.
        """
        if certain and self._indexes is None:
            tail = self.scan(self._load_indexes().offsets.last_position)
            newest = max((header.max_timestamp for _, header in tail), default=NO_TIMESTAMP_MS)
            if newest > (NO_TIMESTAMP_MS if self.max_timestamp is None else self.max_timestamp):
                self._replace_indexes("older than the log")
        if self.max_timestamp is None:
            last = read_last_time_entry(self._disk, self._stem)
            if last is None or last[0] < 0 or last[1] >= self.next_offset - self.base_offset:
                self._replace_indexes("no last timestamp")
            else:
                self.max_timestamp, self.offset_of_max_timestamp = last[0], self.base_offset + last[1]
        return NO_TIMESTAMP_MS if self.max_timestamp is None else self.max_timestamp

    # Reading

    def read(
        self, start: int, *, max_bytes: int, upto: int, at_least_one_batch: bool, resident_only: bool = False
    ) -> tuple[bytes | memoryview, int] | None:
        """(complete batches from the one that contains `start`, next offset).

        Only batches that end below `upto`; at most `max_bytes`, but at least one batch if requested. Empty if the first
        batch exceeds a limit; None if no batch of the segment extends to `start`.
        """
        hints = self._hints
        position = hints.get(start, -1)
        if resident_only:
            self._check_resident(start, position, max_bytes)
        if position < 0:
            position = self.position_of(start)
        left = self.size_bytes - position
        if left <= 0:
            return None
        want = min(left, max(max_bytes, PEEK_SIZE))
        data = self._disk.pread(self._file(), want, position)
        base_offset, length, delta = peek(data)
        first_bytes = length + LOG_OVERHEAD
        if length < BATCH_LENGTH_MIN or first_bytes > left:
            raise self._damaged(position, _NO_BATCH)
        if base_offset + delta >= self.next_offset:
            raise self._damaged(position, _NO_BATCH)
        if base_offset + delta >= upto or (first_bytes > max_bytes and not at_least_one_batch):
            return b"", start
        if first_bytes > want:
            want = first_bytes
            data = self._disk.pread(self._file(), want, position)
        if want == left and upto >= self.next_offset:
            end, next_offset = want, self.next_offset
        else:
            end, next_offset = whole_batches(data, upto=upto)
        if len(data) < want or end == 0:
            raise self._damaged(position, _NO_BATCH)
        if position < self._unchecked_bytes:
            with memoryview(data) as view, view[:end] as batches:
                following = self._offset_at(position + end)
                end, next_offset = sound_batches(batches, position=position, following=following, damaged=self._damaged)
        hints.pop(start, None)
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[next_offset] = position + end
        return (data if end == len(data) else memoryview(data)[:end]), next_offset

    def _check_resident(self, start: int, position: int, max_bytes: int) -> None:
        """Raises ColdRead if a read from `start`, at `position` if that is known (>= 0), would wait for the disk."""
        if position < 0:
            if self._indexes is None and not self._index_asked_for:
                self._index_asked_for = True
                raise ColdRead(FileRange(self._stem + OFFSET_INDEX_SUFFIX, 0, _INDEX_BYTES_MAX))
            position = (self._indexes or self._load_indexes()).offsets.entry_before(start - self.base_offset)[1]
        if position >= self._unchecked_bytes and self.size_bytes - position <= RECENT_BYTES:
            return
        size = min(max(max_bytes, PEEK_SIZE), self.size_bytes - position)
        if size > 0 and not self._disk.is_resident(self._file(), size, position):
            raise ColdRead(FileRange(self.path, position, size))

    def position_of(self, offset: int) -> int:
        """The position of the first batch whose last offset is at least `offset`; `size_bytes` if there is none.

        If the batch at an index entry begins above the entry's offset, the index is wrong and is rebuilt, so that no
        batch is skipped.
        """
        relative = offset - self.base_offset
        end = 0
        for attempt in range(2):
            indexed, position = (self._indexes or self._load_indexes()).offsets.entry_before(relative)
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
                self._replace_indexes("points between batches")
        raise self._damaged(end, _NO_BATCH)

    def _offset_at(self, position: int) -> int:
        """Base offset of the batch at `position`; at the end of the file `next_offset`."""
        if position >= self.size_bytes:
            return self.next_offset
        return peek(self._disk.pread(self._file(), PEEK_SIZE, position))[0]

    def offset_for_timestamp(self, timestamp_ms: int, *, start: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record from `start` on with at least this timestamp."""
        indexes = self._indexes or self._load_indexes()
        first = max(self.base_offset + indexes.times.offset_before(timestamp_ms), start)
        for position, header in self.scan(self.position_of(first)):
            if header.max_timestamp < timestamp_ms or header.next_offset <= start:
                continue
            found = self._search_batch(position, header, timestamp_ms, start)
            if found is not None:
                return found
        return None

    def largest_timestamp_between(self, start: int, upto: int) -> int:
        """The largest timestamp of the records from `start` on in batches that end below `upto`; -1 if none.

        Batches are read from the last index entry below `upto` on; all of them only if one before `start` is newer.
        """
        largest = NO_TIMESTAMP_MS
        first = self.position_of(start)
        indexes = self._indexes or self._load_indexes()
        indexed, position = indexes.offsets.entry_before(upto - 1 - self.base_offset)
        if position > first:
            largest, newest = indexes.times.largest_upto(indexed)
            if largest >= 0 and self.base_offset + newest < self._first_whole_batch(first, start):
                largest, position = NO_TIMESTAMP_MS, first
        for at, header in self.scan(max(first, position)):
            if header.next_offset > upto:
                break
            if header.base_offset < start:
                timestamps = [r.timestamp_ms for r in self._records(at, header) or () if r.offset >= start]
                largest = max(timestamps, default=largest)
            else:
                largest = max(largest, header.max_timestamp)
        return largest

    def _first_whole_batch(self, position: int, start: int) -> int:
        """The first offset from `start` on at which a batch may begin; `position` is that of `start`."""
        header = next((header for _, header in self.scan(position)), None)
        return start if header is None or header.base_offset >= start else header.next_offset

    def scan(self, position: int = 0, *, whole: bool = False) -> Iterator[tuple[int, BatchHeader]]:
        """`scan_file` of this segment, from a batch boundary to the end."""
        return scan_file(self._disk, self._file(), position=position, size_bytes=self.size_bytes, whole=whole)

    def marker_at(self, position: int, header: BatchHeader) -> EndTransactionMarker | None:
        """`read_marker` of the control batch at `position`. Raises KAFKA_STORAGE_ERROR if it is damaged."""
        batch = self._disk.pread(self._file(), header.size_bytes, position)
        try:
            verify_crc(batch, 0, header)
            return read_marker(batch, 0, header)
        except KafkaError as error:
            what = f"{self.path}: the control batch at position {position} is damaged: {error.message}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what) from error

    def headers_before(self, offset: int, *, budget_bytes: int) -> list[BatchHeader]:
        """Headers of the batches below `offset` within about `budget_bytes` before it, oldest first."""
        offsets = (self._indexes or self._load_indexes()).offsets
        end = self.size_bytes if offset >= self.next_offset else self.position_of(offset)
        position = offsets.position_floor(max(end - budget_bytes, 0))
        return [header for _, header in self.scan(position) if header.next_offset <= offset]

    # Opening and recovering

    def load(self, *, index_interval: int) -> bool:
        """Find the end of the active segment by its indexes. False if the file or the indexes are invalid."""
        indexes = SegmentIndexes.read(self._disk, self._stem, log_size=self.size_bytes)
        if indexes is None:
            return False
        self._reset()
        if indexes.need_rebuild(log_size=self.size_bytes, index_interval=index_interval):
            return self._note_from(0, index_interval)
        self._indexes = indexes
        last = indexes.times.last
        if last is not None:
            self.max_timestamp, self.offset_of_max_timestamp = last[0], self.base_offset + last[1]
        is_whole = self._note_from(indexes.offsets.last_position, index_interval)
        return is_whole and (last is None or last[1] < self.next_offset - self.base_offset)

    def recover(self, *, next_offset: int, index_interval: int, accept: Callable[[BatchHeader], None]) -> Cut | None:
        """Verify every batch and truncate the segment at the first invalid one. Returns what was removed, if anything.

        Readers may still have the file of the earlier process mapped, so it is replaced by a shorter copy.

        A batch is invalid if it is malformed or truncated, has a wrong checksum, or a base offset below the expected
        one (`next_offset` for the first). Gaps between offsets are allowed, since compaction makes them; but if offsets
        decrease after a gap, the base offset of the batch after the gap, which has no checksum, was wrong. `accept` is
        called for each valid batch in order. The indexes are rebuilt, except the transaction index.
        """
        self._reset()
        first = self.next_offset = max(next_offset, self.base_offset)
        size_bytes = self.size_bytes
        end = 0
        why = ""
        before_gap: tuple[int, int] | None = None
        for position, header in self.scan(whole=True):
            if header.base_offset < self.next_offset:
                why = "offsets go back"
                if before_gap is not None and header.base_offset >= before_gap[1]:
                    # The batch after the gap has a wrong offset, not this one.
                    self._cut_to(before_gap[0], in_place=False)
                    self.recover(next_offset=first, index_interval=index_interval, accept=accept)
                    return Cut(self.size_bytes, size_bytes - self.size_bytes, why)
                break
            if header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                why = "offset too far from the segment's first"
                break
            if header.base_offset > self.next_offset:
                before_gap = end, self.next_offset
            self._note_header(position, header, index_interval)
            accept(header)
            end = position + header.size_bytes
        cut = None
        if end < size_bytes:
            why = why or describe_missing_batch(self._disk, self._file(), position=end, size_bytes=size_bytes)
            cut = Cut(end, size_bytes - end, why)
            self._cut_to(end, in_place=False)
        self._unchecked_bytes = 0
        self.dirty = True
        return cut

    def load_transactions(self, header_of: Callable[[int], BatchHeader | None]) -> None:
        """Read the transaction index of a segment whose end is known; an invalid file is ignored.

        The file has no checksum: its entries must match the batches (`SegmentList.header_of`), if these are readable.
        """
        index = TransactionIndex.read(
            self._disk, self._stem, base_offset=self.base_offset, next_offset=self.next_offset
        )
        try:
            agrees = index is not None and all(transaction_agrees(entry, header_of) for entry in index)
        except KafkaError:  # the index cannot be rebuilt from a damaged log
            agrees = True
        self.transactions = index if agrees else None
        if not agrees:
            events.warning("transaction index rebuilt", extra={"path": self._stem + TRANSACTION_INDEX_SUFFIX})

    def load_own_transactions(self) -> None:
        """Read the transaction index that this process has just written. Raises OSError if it is malformed."""
        index = TransactionIndex.read(
            self._disk, self._stem, base_offset=self.base_offset, next_offset=self.next_offset
        )
        if index is None:
            raise OSError(errno.EIO, "the transaction index is malformed", self._stem + TRANSACTION_INDEX_SUFFIX)
        self.transactions = index

    def remake_transactions(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Replace the transaction index and its file."""
        self.transactions = TransactionIndex(self._disk, self._stem)
        for transaction in aborted:
            self.transactions.add(transaction)
        with ignore_transient_errors():
            self.transactions.replace()

    def rebuild_indexes(self) -> SegmentIndexes:
        """Rebuild the indexes of a closed segment, and their files, from the batch headers."""
        next_offset = self.next_offset  # known from the next segment
        self._reset()
        self._note_from(0, _REBUILT_INTERVAL_BYTES)
        self.next_offset = next_offset
        indexes = self._indexes
        assert indexes is not None
        if self.max_timestamp is not None and self.max_timestamp >= 0:
            indexes.times.add(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
        with ignore_transient_errors():
            indexes.replace()
        return indexes

    def _replace_indexes(self, why: str) -> SegmentIndexes:
        events.warning("index rebuilt", extra={"path": self.path, "why": why})
        return self.rebuild_indexes()

    def truncate_to(self, offset: int, *, in_place: bool, index_interval: int) -> None:
        """Durably remove the first batch whose last offset is at least `offset`, and all later ones.

        `in_place` only if the removed part was never published to readers that map the file.
        """
        self._cut_to(self.position_of(offset), in_place=in_place)
        self._reset()
        self._note_from(0, index_interval)
        if self.transactions is not None:
            self.transactions.truncate_to(self.next_offset)

    def check_file(self) -> None:
        """Raises OSError if another process has deleted the file or changed its size."""
        status = self._disk.status(self.path)
        if self._identity not in (None, status.identity):
            raise FileNotFoundError(errno.ENOENT, "the file was replaced", self.path)
        self._identity = status.identity
        self._check_size(status.size_bytes)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes != self.size_bytes:
            what = f"the file has {size_bytes} bytes instead of {self.size_bytes}"
            raise OSError(errno.EIO, what, self.path)

    # Closing

    def write_indexes(self, *, final: bool, sync: bool = False) -> None:
        """Update the index files; `final` adds the last timestamp, when the segment is closed."""
        if self.transactions is not None:
            self.transactions.write(sync=sync)
        if self._indexes is None:
            return  # not loaded, hence unchanged
        if final and self.max_timestamp is not None and self.max_timestamp >= 0:
            self._indexes.times.add(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
        self._indexes.write(sync=sync)

    @property
    def path(self) -> str:
        """The path of the `.log` file."""
        return self._stem + LOG_SUFFIX + self._log_ending

    def identity(self) -> tuple[int, int]:
        """The identity of the `.log` file that has its name now."""
        return self._disk.status(self.path).identity

    def paths(self) -> list[str]:
        """The paths of its data and index files, some of which may not exist."""
        return [self.path, *(self._stem + suffix + self._ending for suffix in SEGMENT_SUFFIXES[1:])]

    def renamed(self) -> None:
        """The `.log` file has got its final name."""
        self._log_ending = ""

    def flush(self, *, closed: bool) -> None:
        """fsync the data, and for a closed segment the indexes."""
        self._disk.fsync(self._file())
        if closed:
            self.write_indexes(final=True, sync=True)
        self.dirty = False

    def close(self) -> None:
        if self._handle is not None:
            if self._is_shared:
                self._disk.segment_files.remove(self)
            handle, self._handle = self._handle, None
            self._disk.close(handle)

    def release(self) -> None:
        """Close the file; the next use opens it again."""
        try:
            self.close()
        except OSError:  # no data is lost: what was written is in the page cache
            pass
        self._is_shared = True

    def delete(self) -> None:
        """Close the segment and delete its files, the `.log` last, so that a crash leaves a usable segment or none."""
        self.close()
        for path in reversed(self.paths()):
            if self._disk.exists(path):
                self._disk.unlink(path)

    def retire(self) -> None:
        """Rename the `.log` so that the next start would delete it, and close it. If it raises, nothing has changed.

        `retire_rest` renames the other files when the new name is durable: a segment that reappears after a crash needs
        its transaction index.
        """
        self._disk.rename(self.path, self.path + DELETED_SUFFIX)
        try:
            self.close()
        except OSError:  # no data is lost
            pass

    def retire_rest(self) -> list[str]:
        """Rename the other files. Returns the new paths of all files. Can be repeated if it raises."""
        for path in self.paths():
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX for path in self.paths() if self._disk.exists(path + DELETED_SUFFIX)]

    # Internals

    def _file(self, *, writable: bool = False) -> FileHandle:
        """The open file. Raises OSError if it cannot be opened, or is another one than before."""
        handle = self._handle
        if handle is None or (writable and self._is_read_only):
            return self._open_file(writable=writable)
        if self._is_shared:
            self._disk.segment_files.used(self)
        return handle

    def _open_file(self, *, writable: bool) -> FileHandle:
        self.close()
        disk = self._disk
        self._is_read_only = False
        try:
            handle = disk.open(self.path)
        except OSError as error:
            if writable or error.errno != errno.EROFS:
                raise
            handle = disk.open(self.path, writable=False)
            self._is_read_only = True
        identity = disk.status(handle).identity
        if self._identity not in (None, identity):
            disk.close(handle)
            raise FileNotFoundError(errno.ENOENT, "the file was replaced", self.path)
        self._handle, self._identity = handle, identity
        if self._is_shared:
            disk.segment_files.add(self)
        return handle

    def _cut_to(self, size_bytes: int, *, in_place: bool) -> None:
        """Truncate the file durably. Unless `in_place`, it is replaced by a copy, so that processes that map the old
        file get no SIGBUS. If there is no space for a copy, it is truncated in place."""
        self.size_bytes = size_bytes
        self._unchecked_bytes = min(self._unchecked_bytes, size_bytes)
        if in_place or not self._replace_file():
            self.cut_back()

    def _replace_file(self) -> bool:
        """Replace the file by a copy of its first `size_bytes`. False if there is not enough space."""
        disk = self._disk
        fresh = self.path + TEMPORARY_SUFFIX
        if disk.exists(fresh):
            disk.unlink(fresh)
        handle: FileHandle | None = None
        try:
            handle = disk.open(fresh, create=True)
            for position in range(0, self.size_bytes, _COPY_BYTES):
                piece_bytes = min(_COPY_BYTES, self.size_bytes - position)
                disk.pwrite(handle, disk.pread(self._file(), piece_bytes, position), position)
            disk.fsync(handle)
            disk.rename(fresh, self.path)
        except OSError as error:
            if handle is not None:
                disk.close(handle)
                disk.unlink(fresh)
            if error.errno not in SPACE_IS_SHORT:
                raise
            return False
        self.close()
        self._handle, self._identity = handle, None
        if self._is_shared:
            disk.segment_files.add(self)
        disk.fsync_dir(fresh.rpartition("/")[0])
        return True

    def _note(self, position: int, last_offset: int, max_timestamp: int, since: int, interval: int) -> int:
        """Add a batch to timestamps and indexes. Returns the bytes between the last index entry and the batch."""
        if max_timestamp > (NO_TIMESTAMP_MS if self.max_timestamp is None else self.max_timestamp):
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position == 0:
            self._first_timestamp = max_timestamp
        if since <= interval:
            return since
        indexes = self._indexes
        assert indexes is not None
        indexes.offsets.add(last_offset - self.base_offset, position)
        if self.max_timestamp is not None and self.max_timestamp >= 0:
            indexes.times.add(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)
        return 0

    def _note_header(self, position: int, header: BatchHeader, interval: int) -> None:
        since = self._note(position, header.last_offset, header.max_timestamp, self._bytes_since_index, interval)
        self._bytes_since_index = since + header.size_bytes
        self.next_offset = header.next_offset

    def _note_from(self, position: int, interval: int) -> bool:
        """Add all batches from `position` on, up to an invalid offset. Returns whether it has reached the end."""
        end = position
        for at, header in self.scan(position):
            if (
                not self.next_offset
                <= header.base_offset
                <= header.last_offset
                <= self.base_offset + RELATIVE_OFFSET_MAX
            ):
                break
            self._note_header(at, header, interval)
            end = at + header.size_bytes
        return end == self.size_bytes

    def _reset(self) -> None:
        self._indexes = SegmentIndexes(self._disk, self._stem)
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP_MS, self.base_offset
        self._bytes_since_index = 0
        self._first_timestamp = None
        self.next_offset = self.base_offset
        self._hints.clear()

    def _load_indexes(self) -> SegmentIndexes:
        """The indexes of a closed segment, from their files, or rebuilt if these are missing or invalid."""
        indexes = SegmentIndexes.read(self._disk, self._stem, log_size=self.size_bytes)
        if indexes is None:
            return self._replace_indexes("missing or malformed")
        needs_entries = indexes.need_rebuild(log_size=self.size_bytes, index_interval=_REBUILT_INTERVAL_BYTES)
        if needs_entries and any(position > _REBUILT_INTERVAL_BYTES for position, _ in self.scan()):
            return self._replace_indexes("empty")
        last = indexes.times.last
        if last is not None:
            if last[1] >= self.next_offset - self.base_offset:
                return self._replace_indexes("beyond the log")
            self.max_timestamp, self.offset_of_max_timestamp = last[0], self.base_offset + last[1]
        self._indexes = indexes
        return indexes

    def _search_batch(
        self, position: int, header: BatchHeader, timestamp_ms: int, start: int
    ) -> tuple[int, int, int] | None:
        records = self._records(position, header)
        if records is None:
            # Only the batch header is usable.
            return max(header.base_offset, start), header.max_timestamp, header.partition_leader_epoch
        for record in records:
            if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                return record.offset, record.timestamp_ms, header.partition_leader_epoch
        return None

    def _records(self, position: int, header: BatchHeader) -> list[Record] | None:
        """The records; None if they cannot be decoded, as clients can store such batches with a valid checksum."""
        batch = self._disk.pread(self._file(), header.size_bytes, position)
        try:
            return read_records(batch, 0, header)
        except KafkaError:
            return None

    def _damaged(self, position: int, what: str) -> KafkaError:
        if position not in self._damaged_at and len(self._damaged_at) < _DAMAGE_REPORTED_MAX:
            self._damaged_at.add(position)
            events.error("stored batch damaged", extra={"path": self.path, "position": position, "why": what})
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: at position {position}: {what}")


@contextmanager
def ignore_transient_errors() -> Iterator[None]:
    """Ignore errors of writing rebuilt index files for lack of space: the next process rebuilds them again."""
    try:
        yield
    except OSError as error:
        if not is_transient(error) and error.errno != errno.EROFS:
            raise
