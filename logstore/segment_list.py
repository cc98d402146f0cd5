"""The segments of one log, in order of their base offsets, and their comings and goings on disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from raylog.logstore.disk import Disk
from raylog.logstore.segment import Segment
from raylog.protocol.records.batch import BatchHeader


class SegmentList:
    """Never empty between `open` and `close`. The newest segment is the `active` one: it alone is appended to.

    Segments go so that a crash leaves no hole: newest first from the end, oldest first from the beginning, and for good
    before anything is written in their place. Raises OSError as the disk does.
    """

    __slots__ = ("_bases", "_directory", "_disk", "_segments", "active")

    def __init__(self, disk: Disk, directory: str, segments: list[Segment]) -> None:
        """Not to be called: use `open`."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    @classmethod
    def open(cls, disk: Disk, directory: str, bases: list[int], *, first_base: int, now_ms: int) -> SegmentList:
        """The segments whose files are there, given in order; where there is none, a new one at `first_base`."""
        segments: list[Segment] = []
        try:
            segments.extend(Segment.open(disk, directory, base, now_ms=now_ms) for base in bases)
        except OSError:
            for segment in segments:
                segment.close()
            raise
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
        """Number of the segment that `offset` belongs to; the first for offsets below all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def has_base(self, offset: int) -> bool:
        """Whether a segment begins at `offset`."""
        return self._bases[self.number_of(offset)] == offset

    def header_of(self, offset: int) -> BatchHeader | None:
        """Of the first batch that reaches `offset` in its segment, if any. Raises CORRUPT_MESSAGE as `position_of`."""
        segment = self._segments[self.number_of(offset)]
        return next((header for _, header in segment.scan(segment.position_of(offset))), None)

    def add(self, segment: Segment) -> None:
        """A new active segment."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def drop_from(self, number: int) -> None:
        """Removes the segments from `number` on, which is not the first."""
        assert number > 0
        dropped = self._segments[number:]
        del self._segments[number:], self._bases[number:]
        self.active = self._segments[-1]
        self._delete_newest_first(dropped)

    def drop_oldest(self) -> Segment:
        """Takes the oldest segment, which is not the active one, from the list. Its files are the caller's now."""
        assert len(self._segments) > 1
        del self._bases[0]
        return self._segments.pop(0)

    def start_anew_at(self, offset: int, *, now_ms: int) -> None:
        """Removes all segments, and begins a new one."""
        self._delete_newest_first(self._segments)
        self._segments.clear()
        self._bases.clear()
        segment = Segment.create(self._disk, self._directory, offset, now_ms=now_ms)
        segment.dirty = True
        self.add(segment)
        self._disk.fsync_dir(self._directory)

    def flush(self) -> None:
        """Syncs what no fsync covers yet: the data, and the indexes of the closed segments."""
        last = len(self._segments) - 1
        first_dirty = last
        while first_dirty > 0 and self._segments[first_dirty - 1].dirty:
            first_dirty -= 1
        for number in range(first_dirty, last + 1):
            segment = self._segments[number]
            if segment.dirty:
                segment.flush(closed=number < last)

    def close(self) -> None:
        for segment in self._segments:
            try:
                segment.close()
            except OSError:  # nothing is lost by it: what had to be durable was synced before
                continue
        self._segments.clear()
        self._bases.clear()

    def _delete_newest_first(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            segment.delete()
        if segments:
            self._disk.fsync_dir(self._directory)
