"""Cleans a part of a compacted log: keeps the latest record of each key, in new segments beside the old ones.

A cleaning reads the dirty part, from the end of the last cleaning on, into a map of the latest offset of each key. Then
it copies all segments up to the end of the dirty part without the records that the map supersedes. Several small
segments become one. The copies have the suffix `.cleaned`; segment_swap.py puts them in place of the old ones.

`clean` accesses only closed segments, which do not change, and runs in another process than the log
(cleaner_process.py) or, in the simulator, in the same one.
Source: Kafka documentation, "Log Compaction"; KIP-58, KIP-354, KIP-534.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from raylog.logstore.batch_scan import read_file_batches
from raylog.logstore.cleaned_transactions import CleanedTransactions
from raylog.logstore.disk import Disk
from raylog.logstore.producer_state import AbortedTransaction
from raylog.logstore.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, file_name
from raylog.logstore.segment_swap import CLEANED_SUFFIX, remove_cleaned
from raylog.protocol.records.batch import BatchHeader, parse_header
from raylog.protocol.records.compaction import (
    SLOT_BYTES,
    OffsetMap,
    compacted,
    delete_horizon_ms,
    emptied,
    offset_map,
    slots_for,
    with_delete_horizon,
)
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.reader import decompressed_records

INT64_MAX: Final = (1 << 63) - 1


class SegmentRange(NamedTuple):
    """A closed segment. All its offsets are below `next_offset`, the base offset of the next one."""

    base_offset: int
    next_offset: int
    size_bytes: int


class LastBatch(NamedTuple):
    """The epoch of an active producer, and the last offset of its last batch with records; -1 if there is none."""

    producer_epoch: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class CleanerBuffers:
    """Memory of one cleaning, and its limit of bytes read and written per second."""

    dedupe_bytes: int
    io_bytes: int
    load_factor: float
    io_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What `clean` needs to know of a log, as of the time when it was planned."""

    directory: str
    segments: tuple[SegmentRange, ...]
    """Those that may be replaced: the first of the log, up to the last that may be cleaned."""
    first_dirty: int
    """Offset from which on keys are read into the map."""
    aborted: tuple[AbortedTransaction, ...]
    """Aborted transactions with records in the segments."""
    producers: Mapping[int, LastBatch]
    """The active producers, whose last batches are kept, with or without records."""
    segment_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    now_ms: int
    generation: int
    """That of the log."""
    secret: bytes


class CleanedSegment(NamedTuple):
    """A new segment, whose files have the suffix `.cleaned`, and the base offsets of those that it replaces."""

    replaces: tuple[int, ...]
    next_offset: int

    @property
    def base_offset(self) -> int:
        return self.replaces[0]


class CleanedLog(NamedTuple):
    """The result of a cleaning: its new segments, in order, and the offset up to which the log is clean with them."""

    segments: tuple[CleanedSegment, ...]
    upto: int
    read_bytes: int
    written_bytes: int


def clean(
    disk: Disk, plan: CleaningPlan, buffers: CleanerBuffers, on_io: Callable[[int], None] = lambda size: None
) -> CleanedLog:
    """Write the new segments, durably. `on_io` is called with the size of each read and write.

    Raises CORRUPT_MESSAGE for a damaged batch, and OSError.
    """
    remove_cleaned(disk, plan.directory)
    cleaning = _Cleaning(disk, plan, buffers, on_io)
    cleaning.read_keys()
    upto = cleaning.latest.latest_offset + 1
    segments = [cleaning.clean_group(group) for group in _groups(plan, upto=upto)]
    disk.fsync_dir(plan.directory)
    return CleanedLog(tuple(segments), upto, cleaning.read_bytes, cleaning.written_bytes)


def _groups(plan: CleaningPlan, *, upto: int) -> Iterator[list[SegmentRange]]:
    """The segments that begin below `upto`, in groups that fit one segment each as they are."""
    group: list[SegmentRange] = []
    size_bytes = 0
    for segment in plan.segments:
        if segment.base_offset >= upto:
            break
        size_bytes += segment.size_bytes
        too_far = group and segment.next_offset - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX
        if group and (size_bytes > plan.segment_bytes or too_far):
            yield group
            group, size_bytes = [], segment.size_bytes
        group.append(segment)
    if group:
        yield group


class _Cleaning:
    def __init__(self, disk: Disk, plan: CleaningPlan, buffers: CleanerBuffers, on_io: Callable[[int], None]) -> None:
        self.read_bytes = 0
        self.written_bytes = 0
        self._disk = disk
        self._plan = plan
        self._io_bytes = buffers.io_bytes
        self._on_io = on_io
        self._horizon_ms = min(plan.now_ms + plan.delete_retention_ms, INT64_MAX)
        self._transactions = CleanedTransactions(plan.aborted)
        dirty_offsets = plan.segments[-1].next_offset - plan.first_dirty
        self._keys_max = max(int(buffers.dedupe_bytes * buffers.load_factor) // SLOT_BYTES, 1)
        if slots_for(dirty_offsets) * SLOT_BYTES <= buffers.dedupe_bytes:
            self._keys_max = dirty_offsets
        self.latest: OffsetMap = offset_map(self._keys_max, plan.secret)

    def read_keys(self) -> None:
        """Read the dirty part into the map, as far as there is space for its keys, but at least one batch."""
        self.latest.latest_offset = self._plan.first_dirty - 1
        while not self._read_keys() and self.latest.latest_offset < self._plan.first_dirty:
            self._keys_max *= 2
            self.latest = offset_map(self._keys_max, self._plan.secret)
            self.latest.latest_offset = self._plan.first_dirty - 1

    def _read_keys(self) -> bool:
        plan, latest = self._plan, self.latest
        dirty = [segment for segment in plan.segments if segment.next_offset > plan.first_dirty]
        transactions = CleanedTransactions(each for each in plan.aborted if each.last_offset >= dirty[0].base_offset)
        for segment in dirty:
            for batch, header in self._batches(segment):
                if header.is_control:
                    transactions.is_unneeded(batch, header)
                elif transactions.is_aborted(header) or header.last_offset < plan.first_dirty:
                    pass
                elif header.record_count:
                    records = decompressed_records(batch, 0, header)
                    if not latest.add(records, header, first=plan.first_dirty):
                        return False
                latest.latest_offset = max(latest.latest_offset, header.last_offset)
            latest.latest_offset = segment.next_offset - 1
        return True

    def clean_group(self, group: list[SegmentRange]) -> CleanedSegment:
        """Write the segment that replaces the group.

        Its last batch is kept, at least without its records, so that it ends where the next segment begins.
        """
        plan, first = self._plan, group[0]
        fresh = Segment.create(self._disk, plan.directory, first.base_offset, now_ms=plan.now_ms, ending=CLEANED_SUFFIX)
        try:
            parts: list[Buffer] = []
            placed: list[tuple[int, int, int]] = []
            size_bytes = 0
            for batch, header, is_last in _with_end(chain.from_iterable(map(self._batches, group))):
                kept = self._clean_batch(batch, header, is_last=is_last)
                if kept is not None:
                    parts.append(kept[0])
                    placed.append((size_bytes, header.last_offset, kept[1]))
                    size_bytes += len(kept[0])
                if parts and (is_last or size_bytes >= self._io_bytes):
                    self._append(fresh, parts, placed)
                    parts, placed, size_bytes = [], [], 0
            assert fresh.transactions is not None  # new segments have a transaction index
            for aborted in self._transactions.indexed:
                fresh.transactions.add(aborted)
            self._transactions.indexed.clear()
            fresh.flush(closed=True)
        finally:
            fresh.close()
        return CleanedSegment(tuple(each.base_offset for each in group), group[-1].next_offset)

    def _append(self, segment: Segment, parts: list[Buffer], placed: list[tuple[int, int, int]]) -> None:
        data = b"".join(parts)
        segment.append(data, placed, index_interval=self._plan.index_interval_bytes)
        self.written_bytes += len(data)
        self._on_io(len(data))

    def _clean_batch(self, batch: memoryview, header: BatchHeader, *, is_last: bool) -> tuple[Buffer, int] | None:
        """The batch that remains and its largest timestamp; None if nothing does."""
        remains: Buffer | None = batch
        horizon = delete_horizon_ms(header)
        if header.is_control:
            if self._transactions.is_unneeded(batch, header):
                if not header.record_count or (horizon is not None and horizon <= self._plan.now_ms):
                    remains = None
                elif horizon is None:
                    remains = with_delete_horizon(batch, header, self._horizon_ms)
        elif self._transactions.is_aborted(header) or not header.record_count:
            remains = None
        else:
            remains = compacted(batch, header, self.latest, now_ms=self._plan.now_ms, horizon_ms=self._horizon_ms)
        if remains is batch:
            return batch, header.max_timestamp
        if remains is not None:
            return remains, parse_header(remains).max_timestamp
        if is_last or self._is_last_of_producer(header):
            return emptied(header), header.max_timestamp
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._plan.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _batches(self, segment: SegmentRange) -> Iterator[tuple[memoryview, BatchHeader]]:
        path = f"{self._plan.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}"
        for _, batch, header in read_file_batches(self._disk, path, position=0, chunk_bytes=self._io_bytes):
            self.read_bytes += len(batch)
            self._on_io(len(batch))
            yield batch, header


def _with_end(batches: Iterable[tuple[memoryview, BatchHeader]]) -> Iterator[tuple[memoryview, BatchHeader, bool]]:
    """The same, each with whether it is the last one."""
    before: tuple[memoryview, BatchHeader] | None = None
    for each in batches:
        if before is not None:
            yield *before, False
        before = each
    if before is not None:
        yield *before, True
