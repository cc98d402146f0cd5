"""The cleaning of one log, as its broker sees it: what may be cleaned, and the swap of the cleaned segments.

Only closed segments are cleaned, and only below the offset up to which nothing can change any more: a value must not go
for a later one that may yet be truncated. After a truncation, or if retention has deleted one of the segments, what is
left of a cleaning is dropped.

Segments are swapped from the oldest on, each durably before the next: a tombstone never goes before the values that it
deletes. A swap waits twice for the disk. Records may be appended and read meanwhile; before segments go in another way,
`settle` completes the swap or undoes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from raylog.core.ids import NO_OFFSET, Offset
from raylog.logstore.cleaner import CleanedLog, CleanedSegment, CleaningPlan, LastBatch, SegmentRange
from raylog.logstore.disk import Disk, FileHandle
from raylog.logstore.durability import Durability
from raylog.logstore.log_producers import LogProducers
from raylog.logstore.retirement import Retirement
from raylog.logstore.segment import LOG_SUFFIX, Segment, file_name
from raylog.logstore.segment_list import SegmentList
from raylog.logstore.segment_swap import SWAP_SUFFIX, begin_swap, end_swap, place_indexes, undo_swap
from raylog.logstore.settings import LogSettings


class Cleanable(NamedTuple):
    """What a cleaning of the log would read."""

    first_dirty: Offset
    upto: Offset
    """The end of the last segment that may be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether a record is older than max.compaction.lag.ms and not cleaned yet."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty share, which min.cleanable.dirty.ratio refers to."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


class LogCleaning:
    """Replaces the segments of a log by cleaned ones.

    Methods raise the OSErrors of the disk. After an error of `swap_next` or `settle` the log must be opened again.
    """

    __slots__ = (
        "_begun",
        "_directory",
        "_disk",
        "_durability",
        "_next",
        "_placed",
        "_producers",
        "_retirement",
        "_segments",
        "_upto",
        "upto",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: SegmentList,
        durability: Durability,
        producers: LogProducers,
        retirement: Retirement,
        *,
        upto: Offset,
    ) -> None:
        self.upto = upto
        """The offset up to which the log is clean."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._durability = durability
        self._producers = producers
        self._retirement = retirement
        self._next: deque[CleanedSegment] = deque()
        """Cleaned segments that are still to be swapped in."""
        self._begun: CleanedSegment | None = None
        """The one whose swap has begun, and that is not in the log yet."""
        self._placed: Segment | None = None
        """The new segment that is in the log, and whose file does not have its final name yet."""
        self._upto = upto
        """What `upto` is after that."""

    def cleanable(
        self, settings: LogSettings, *, log_start_offset: Offset, limit: Offset, now_ms: int
    ) -> Cleanable | None:
        """What may be cleaned below `limit`; None if there is nothing."""
        first_dirty = self._first_dirty(log_start_offset)
        clean_bytes = dirty_bytes = 0
        upto = first_dirty
        overdue_before_ms = now_ms - settings.max_compaction_lag_ms
        is_overdue = False
        for segment in self._segments:
            if segment is self._segments.active:
                break
            if segment.next_offset <= first_dirty:
                clean_bytes += segment.size_bytes
                continue
            if segment.next_offset > limit or segment.dirty:
                break
            lag_ms = settings.min_compaction_lag_ms
            if lag_ms and segment.largest_timestamp() > now_ms - lag_ms:
                break
            dirty_bytes += segment.size_bytes
            upto = Offset(segment.next_offset)
            is_overdue = is_overdue or 0 <= segment.first_timestamp() < overdue_before_ms
        return Cleanable(first_dirty, upto, clean_bytes, dirty_bytes, is_overdue) if dirty_bytes else None

    def plan(
        self, cleanable: Cleanable, settings: LogSettings, *, generation: int, now_ms: int, secret: bytes
    ) -> CleaningPlan:
        """A plan for `cleaner.clean`. `generation` is that of the log."""
        segments = [segment for segment in self._segments if segment.next_offset <= cleanable.upto]
        producers = {
            producer_id: LastBatch(entry.producer_epoch, entry.batches[-1].last_offset if entry.batches else NO_OFFSET)
            for producer_id, entry in self._producers.state.producers().items()
        }
        return CleaningPlan(
            self._directory,
            tuple(SegmentRange(each.base_offset, each.next_offset, each.size_bytes) for each in segments),
            cleanable.first_dirty,
            tuple(self._producers.aborted_transactions(segments[0].base_offset, cleanable.upto)),
            producers,
            settings.segment_bytes,
            settings.index_interval_bytes,
            settings.delete_retention_ms,
            now_ms,
            generation,
            secret,
        )

    def begin_swaps(self, cleaned: CleanedLog) -> None:
        """Swap in these segments by calls of `swap_next`."""
        self._next = deque(cleaned.segments)
        self._upto = Offset(cleaned.upto)

    def settle(self) -> None:
        """Complete the swap that has begun, durably, or undo it; the caller will remove segments."""
        if self._placed is not None:
            self._sync(None)
            self._disk.close(self._end(self._placed))
        elif self._begun is not None:
            undo_swap(self._disk, self._directory, self._begun.base_offset)
            self._begun = None
            self._next.clear()

    def drop(self, *, upto: Offset) -> None:
        """Drop what is left of a cleaning, because the log was truncated to `upto`. `settle` was called before."""
        self._next.clear()
        self.upto = min(self.upto, upto)

    def swap_next(self, *, now_ms: int, due_ms: int) -> Callable[[], None] | None:
        """Take the next step of the swaps. Returns what the caller does, in any thread, before the next call; None at
        the end. The old files are deleted at `due_ms`.
        """
        replaced: FileHandle | None = None
        if self._begun is not None:
            self._place(self._begun, now_ms=now_ms, due_ms=due_ms)
        elif self._placed is not None:
            replaced = self._end(self._placed)
        elif not self._begin():
            return None
        return partial(self._sync, replaced)

    def _begin(self) -> bool:
        if not self._next:
            return False
        cleaned = self._next.popleft()
        if tuple(segment.base_offset for segment in self._replaced_by(cleaned)) != cleaned.replaces:
            self._next.clear()
            return False
        begin_swap(self._disk, self._directory, cleaned.base_offset)
        self._begun = cleaned
        return True

    def _place(self, cleaned: CleanedSegment, *, now_ms: int, due_ms: int) -> None:
        replaced = self._replaced_by(cleaned)
        for segment in reversed(replaced[1:]):
            self._retirement.retire(segment, due_ms=due_ms)
        replaced[0].close()
        place_indexes(self._disk, self._directory, cleaned.base_offset)
        self._durability.directory_changed()
        fresh = Segment.open(self._disk, self._directory, cleaned.base_offset, now_ms=now_ms, log_ending=SWAP_SUFFIX)
        fresh.next_offset = cleaned.next_offset
        fresh.load_own_transactions()
        fresh.release()
        self._segments.replace(self._segments.number_of(cleaned.base_offset), len(replaced), fresh)
        self._begun, self._placed = None, fresh

    def _end(self, placed: Segment) -> FileHandle:
        """Returns the file that was replaced. Closing it frees its space, which takes long."""
        replaced = self._disk.open(f"{self._directory}/{file_name(placed.base_offset, LOG_SUFFIX)}", writable=False)
        end_swap(self._disk, self._directory, placed.base_offset)
        self._durability.directory_changed()
        placed.renamed()
        self._placed = None
        if not self._next:
            self.upto = self._upto
        return replaced

    def _sync(self, replaced: FileHandle | None) -> None:
        if replaced is not None:
            self._disk.close(replaced)
        self._disk.fsync_dir(self._directory)

    def _replaced_by(self, cleaned: CleanedSegment) -> list[Segment]:
        first = self._segments.number_of(cleaned.base_offset)
        last = min(first + len(cleaned.replaces), len(self._segments))
        return [self._segments[number] for number in range(first, last)]

    def _first_dirty(self, log_start_offset: Offset) -> Offset:
        return max(self.upto, log_start_offset)
