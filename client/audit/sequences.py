"""How often each sequence number was counted, as ranges: memory grows with the gaps, and not with the numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SEQUENCE_END: Final = 1 << 63
"""One past the greatest sequence number."""


class Segment(NamedTuple):
    """The sequence numbers of [start, end), each of which was counted `times`."""

    start: int
    end: int
    times: int


class SequenceCounts:
    """A multiset of sequence numbers. Numbers that are counted in order take one range."""

    __slots__ = ("_end", "_folded", "_folded_count", "_segments", "_start")

    def __init__(self) -> None:
        self._start = self._end = -1
        """The open range, to which numbers in order are added; empty at first."""
        self._segments: list[Segment] = []
        """In any order, and overlapping, until they are folded."""
        self._folded = True
        self._folded_count = 0

    def __len__(self) -> int:
        """The number of ranges that are held."""
        return len(self._segments) + (self._end > self._start)

    def add(self, sequence: int) -> bool:
        """Count one number. Whether it took a new range."""
        if sequence == self._end:
            self._end += 1
            return False
        self._close()
        self._start, self._end = sequence, sequence + 1
        return True

    def add_range(self, start: int, end: int, times: int = 1) -> None:
        """Count each number of [start, end) `times`."""
        self._segments.append(Segment(start, end, times))
        self._folded = False
        if len(self._segments) > 2 * self._folded_count + 1024:
            self._fold()

    def segments(self) -> list[Segment]:
        """In order, disjoint, and as few as possible."""
        self._close()
        if not self._folded:
            self._fold()
        return self._segments

    def _close(self) -> None:
        if self._end > self._start:
            self.add_range(self._start, self._end)
        self._start = self._end = -1

    def _fold(self) -> None:
        changes: dict[int, int] = {}
        for start, end, times in self._segments:
            changes[start] = changes.get(start, 0) + times
            changes[end] = changes.get(end, 0) - times
        self._segments = folded = []
        before = depth = 0
        for position in sorted(changes):
            if not changes[position]:
                continue
            if depth:
                folded.append(Segment(before, position, depth))
            before, depth = position, depth + changes[position]
        self._folded, self._folded_count = True, len(folded)


def sweep(counts: Sequence[Sequence[Segment]]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(start, end, how often each of `counts` has them) for all sequence numbers that any of them has, in order.

    Each of `counts` is what `SequenceCounts.segments` returns.
    """
    changes: dict[int, list[tuple[int, int]]] = {}
    for index, segments in enumerate(counts):
        for start, end, times in segments:
            changes.setdefault(start, []).append((index, times))
            changes.setdefault(end, []).append((index, -times))
    times_now = [0] * len(counts)
    before = 0
    for position in sorted(changes):
        if any(times_now):
            yield before, position, tuple(times_now)
        for index, change in changes[position]:
            times_now[index] += change
        before = position
