"""Cleans a part of a compacted log: keeps the latest record of each key, in new segments beside the old ones.

A cleaning reads the dirty part, from the end of the last cleaning on, into a map of the latest offset of each key. Then
it copies all segments up to the end of the dirty part without the records that the map supersedes. Several small
segments become one. The copies have the suffix `.cleaned`; segment_swap.py puts them in place of the old ones.

`clean` accesses only closed segments, which do not change, and runs in another process than the log
(cleaner_process.py) or, in the simulator, in the same one.
Source: Kafka documentation, "Log Compaction"; KIP-58, KIP-354, KIP-534.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore.batch_scan import read_file_batches
from raylog.logstore.cleaned_transactions import CleanedTransactions
from raylog.logstore.disk import Disk
from raylog.logstore.producer_state import AbortedTransaction
from raylog.logstore.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, file_name
from raylog.logstore.segment_swap import CLEANED_SUFFIX, remove_cleaned
from raylog.protocol.records.batch import BatchHeader, parse_header
from raylog.protocol.records.compaction import (
    CLEANED_BYTES_MAX,
    SLOT_BYTES,
    OffsetMap,
    Place,
    RetainedBatches,
    Span,
    Terms,
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
        self._terms = Terms(
            now_ms=plan.now_ms,
            horizon_ms=min(plan.now_ms + plan.delete_retention_ms, INT64_MAX),
            needed=array("q", sorted(last.last_offset for last in plan.producers.values())),
            index_interval_bytes=plan.index_interval_bytes,
        )
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
        add_batches = partial(latest.add_batches, first=plan.first_dirty, may_be_transactional=not plan.aborted)
        for segment in dirty:
            for batch, header, _ in self._batches(segment, add_batches):
                if header.is_control:
                    transactions.is_unneeded(batch, header)
                elif transactions.is_aborted(header) or header.last_offset < plan.first_dirty:
                    pass
                elif header.record_count:
                    records = decompressed_records(batch, 0, header, CLEANED_BYTES_MAX)
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
            output = _Output(fresh, plan.index_interval_bytes)

            def retain_batches(chunk: memoryview, at: int, span: Span) -> int:
                retained = self.latest.retain_batches(chunk, at, span, self._terms, since_index=output.since_index)
                output.extend(retained)
                return retained.following

            last = next((segment for segment in reversed(group) if segment.size_bytes), None)
            for segment in group:
                for batch, header, end in self._batches(segment, retain_batches):
                    is_last = segment is last and end == segment.size_bytes
                    kept = self._clean_batch(batch, header, is_last=is_last)
                    if kept is not None:
                        output.add(kept[0], header.last_offset, kept[1])
                    if is_last or output.size_bytes >= self._io_bytes:
                        self._write(output)
            assert fresh.transactions is not None  # new segments have a transaction index
            for aborted in self._transactions.indexed:
                fresh.transactions.add(aborted)
            self._transactions.indexed.clear()
            fresh.flush(closed=True)
        finally:
            fresh.close()
        return CleanedSegment(tuple(each.base_offset for each in group), group[-1].next_offset)

    def _write(self, output: _Output) -> None:
        self.written_bytes += output.size_bytes
        self._on_io(output.size_bytes)
        output.write()

    def _clean_batch(self, batch: memoryview, header: BatchHeader, *, is_last: bool) -> tuple[Buffer, int] | None:
        """The batch that remains and its largest timestamp; None if nothing does."""
        terms = self._terms
        remains: Buffer | None = batch
        horizon = delete_horizon_ms(header)
        if header.is_control:
            if self._transactions.is_unneeded(batch, header):
                if not header.record_count or (horizon is not None and horizon <= terms.now_ms):
                    remains = None
                elif horizon is None:
                    remains = with_delete_horizon(batch, header, terms.horizon_ms)
        elif self._transactions.is_aborted(header) or not header.record_count:
            remains = None
        else:
            remains = compacted(batch, header, self.latest, now_ms=terms.now_ms, horizon_ms=terms.horizon_ms)
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

    def _batches(
        self, segment: SegmentRange, take: Callable[[memoryview, int, Span], int]
    ) -> Iterator[tuple[memoryview, BatchHeader, int]]:
        """The batches of the segment that `take` leaves, each with the position of its end."""
        path = f"{self._plan.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}"

        span = Span(segment.base_offset, segment.next_offset)

        def take_some(chunk: memoryview, at: int) -> int:
            following = take(chunk, at, span)
            self._count_read(following - at)
            return following

        end = 0
        batches = read_file_batches(self._disk, path, position=0, chunk_bytes=self._io_bytes, take=take_some)
        for position, batch, header in batches:
            if not span.base_offset <= header.base_offset <= header.last_offset < span.next_offset:
                what = f"offsets {header.base_offset} to {header.last_offset} do not belong to the segment"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: at position {position}: {what}")
            self._count_read(len(batch))
            end = position + len(batch)
            yield batch, header, end
        if end != segment.size_bytes:
            what = f"it ends at {end} instead of {segment.size_bytes}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: {what}")

    def _count_read(self, size_bytes: int) -> None:
        if size_bytes:
            self.read_bytes += size_bytes
            self._on_io(size_bytes)


class _Output:
    """The batches of a new segment, which are written many at a time."""

    def __init__(self, segment: Segment, index_interval_bytes: int) -> None:
        self.size_bytes = 0
        """Of the batches that are not written yet."""
        self.since_index = 0
        """The distance from the last batch with an index entry to the next batch, as `Segment` counts it."""
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._parts: list[Buffer] = []
        self._places: list[Place] = []

    def add(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        if self.since_index > self._index_interval_bytes:
            self.since_index = 0
        self.since_index += len(batch)
        self._places.append(Place(self.size_bytes, last_offset, max_timestamp))
        self._add_part(batch)

    def extend(self, retained: RetainedBatches) -> None:
        if retained.batches:
            self.since_index = retained.since_index
            self._places += [each._replace(position=self.size_bytes + each.position) for each in retained.places]
            self._add_part(retained.batches)

    def write(self) -> None:
        self._segment.append(b"".join(self._parts), self._places, index_interval=self._index_interval_bytes)
        self._parts, self._places, self.size_bytes = [], [], 0

    def _add_part(self, part: Buffer) -> None:
        self._parts.append(part)
        self.size_bytes += len(part)
