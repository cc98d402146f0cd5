"""The segments of one log, ordered by base offset: look-ups across segments, adding and removing segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.logstore.disk import Disk
from raylog.logstore.segment import Segment
from raylog.protocol.records.batch import BatchHeader


class SegmentList:
    """Never empty between `open` and `close`. The last segment is the `active` one, the only one that is appended to.

    Segments are deleted so that a crash leaves no gap: newest first at the end, oldest first at the start, durably
    before new segments replace them. Raises the OSErrors of the disk.
    """

    __slots__ = ("_bases", "_directory", "_disk", "_segments", "active")

    def __init__(self, disk: Disk, directory: str, segments: list[Segment]) -> None:
        """Use `open` instead."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    @classmethod
    def open(cls, disk: Disk, directory: str, bases: list[int], *, first_base: int, now_ms: int) -> SegmentList:
        """Open the segments with these base offsets, in order; without any, create one at `first_base`."""
        segments = [Segment.open(disk, directory, base, now_ms=now_ms) for base in bases]
        for number, base in enumerate(bases[1:]):
            segments[number].next_offset = base
        if not segments:
            segments.append(Segment.create(disk, directory, first_base, now_ms=now_ms))
            segments[0].dirty = True
        return cls(disk, directory, segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def number_of(self, offset: int) -> int:
        """The number of the segment that contains `offset`; the first for lower offsets."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def has_base(self, offset: int) -> bool:
        """Whether a segment begins at `offset`."""
        return self._bases[self.number_of(offset)] == offset

    def header_of(self, offset: int) -> BatchHeader | None:
        """The header of the first batch in its segment whose last offset is at least `offset`, if any. Raises
        CORRUPT_MESSAGE like `position_of`."""
        segment = self._segments[self.number_of(offset)]
        return next((header for _, header in segment.scan(segment.position_of(offset))), None)

    # Lookups

    def read(
        self, start: int, *, max_bytes: int, upto: int, at_least_one_batch: bool, resident_only: bool = False
    ) -> tuple[bytes | memoryview, int] | None:
        """`Segment.read` of the first segment with a batch that extends to `start`; None if there is none."""
        for number in range(self.number_of(start), len(self._segments)):
            found = self._segments[number].read(
                start,
                max_bytes=max_bytes,
                upto=upto,
                at_least_one_batch=at_least_one_batch,
                resident_only=resident_only,
            )
            if found is not None:
                return found
        return None

    def place_of(self, offset: int) -> tuple[Segment, int]:
        """(segment, position) of the first batch whose last offset is at least `offset`, or of the end of the log."""
        for number in range(self.number_of(offset), len(self._segments) - 1):
            segment = self._segments[number]
            position = segment.position_of(offset)
            if position < segment.size_bytes:
                return segment, position
        return self.active, self.active.position_of(offset)

    def offset_for_timestamp(self, timestamp_ms: int, *, start: int, upto: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record in [start, upto) with at least this timestamp."""
        for segment in self._segments:
            if segment.base_offset >= upto:
                break
            if segment.largest_timestamp() < timestamp_ms or segment.next_offset <= start:
                continue
            found = segment.offset_for_timestamp(timestamp_ms, start=max(start, segment.base_offset))
            if found is not None:
                return found if found[0] < upto else None
        return None

    def largest_timestamp_between(self, start: int, upto: int) -> int:
        """The largest timestamp of all records in [start, upto); -1 if there is none."""
        largest = NO_TIMESTAMP_MS
        for segment in self._segments:
            if segment.base_offset >= upto:
                break
            if start <= segment.base_offset and segment.next_offset <= upto:
                largest = max(largest, segment.largest_timestamp())
            elif segment.next_offset > start:
                largest = max(largest, segment.largest_timestamp_between(start, upto))
        return largest

    # Adding and removing segments

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def replace(self, first: int, count: int, segment: Segment) -> None:
        """Put one segment in place of `count` closed ones with the same offsets. The caller replaces their files."""
        self._segments[first : first + count] = [segment]
        self._bases[first : first + count] = [segment.base_offset]

    def drop_from(self, number: int) -> None:
        """Delete the segments from `number` on, which is not the first."""
        assert number > 0
        dropped = self._segments[number:]
        del self._segments[number:], self._bases[number:]
        self.active = self._segments[-1]
        self._delete_newest_first(dropped)

    def drop_oldest(self) -> Segment:
        """Remove the oldest segment, which is not the active one, from the list. The caller deletes its files."""
        assert len(self._segments) > 1
        del self._bases[0]
        return self._segments.pop(0)

    def start_anew_at(self, offset: int, *, now_ms: int) -> None:
        """Delete all segments and create a new one at `offset`."""
        self._delete_newest_first(self._segments)
        self._segments.clear()
        self._bases.clear()
        segment = Segment.create(self._disk, self._directory, offset, now_ms=now_ms)
        segment.dirty = True
        self.add(segment)
        self._disk.fsync_dir(self._directory)

    def write_indexes(self) -> None:
        """Write the indexes of the closed segments that `flush` will sync, so that it needs no more space."""
        for segment in self._dirty():
            if segment is not self.active:
                segment.write_indexes(final=True)

    def flush(self) -> None:
        """Sync unsynced data, and the indexes of closed segments."""
        for segment in self._dirty():
            segment.flush(closed=segment is not self.active)

    def release(self) -> None:
        """Close the files; the next use opens them again, as some of the open files of the disk."""
        for segment in self._segments:
            segment.release()

    def close(self) -> None:
        for segment in self._segments:
            try:
                segment.close()
            except OSError:  # no data is lost: it was synced before
                continue
        self._segments.clear()
        self._bases.clear()

    def _dirty(self) -> list[Segment]:
        """The segments with unsynced data, which are the last ones; oldest first."""
        first = len(self._segments) - 1
        while first > 0 and self._segments[first - 1].dirty:
            first -= 1
        return [segment for segment in self._segments[first:] if segment.dirty]

    def _delete_newest_first(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            segment.delete()
        if segments:
            self._disk.fsync_dir(self._directory)
