"""What one reporter has counted and not reported yet, in bounded memory. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from raylog.client.audit.reports import Count, Kind, Report, Unstamped
from raylog.client.audit.sequences import SequenceCounts
from raylog.client.audit.stamps import Stamp, bucket_of

RANGES_MAX: Final = 20_000
CELLS_MAX: Final = 1_000
"""Most ranges, and most combinations of topic, producer and bucket, in one report; then another one is begun."""
REPORTS_MAX: Final = 64
"""Most reports that wait to be taken. Then the oldest one is dropped; the missing number tells the check."""


class Counts:
    """Counts records by their stamps. `take` gives the reports."""

    def __init__(
        self, reporter: bytes, tier: str, *, bucket_ms: int, interval_ms: int, topics: tuple[str, ...] = ()
    ) -> None:
        """`topics` are named in each report, for the tier log."""
        self._reporter = reporter
        self._tier = tier
        self._bucket_ms = bucket_ms
        self._interval_ms = interval_ms
        self._topics = topics
        self._number = 0
        self._cells: dict[tuple[Kind, str, bytes, int], SequenceCounts] = {}
        self._unstamped: dict[tuple[str, int], int] = {}
        self._ranges = 0
        """Of the cells, about."""
        self._closed: deque[Report] = deque(maxlen=REPORTS_MAX)

    def count(self, kind: Kind, topic: str, stamp: Stamp) -> None:
        key = kind, topic, stamp.client, stamp.bucket_ms
        cell = self._cells.get(key)
        if cell is None:
            self._make_room()
            cell = self._cells[key] = SequenceCounts()
        if cell.add(stamp.sequence):
            self._ranges += 1
            if self._ranges >= RANGES_MAX:
                self._shrink()

    def count_unstamped(self, topic: str, timestamp_ms: int) -> None:
        key = topic, bucket_of(timestamp_ms, self._bucket_ms)
        if key not in self._unstamped:
            self._make_room()
        self._unstamped[key] = self._unstamped.get(key, 0) + 1

    @property
    def closed_count(self) -> int:
        """The number of reports that were closed since they had become too large."""
        return len(self._closed)

    def take(self, *, is_last: bool = False, until_ms: int | None = None) -> list[Report]:
        """The reports since the last call: at least one, which may be empty and tells that the reporter is alive."""
        self._close(is_last=is_last, until_ms=until_ms)
        return self.take_closed()

    def take_closed(self) -> list[Report]:
        """Only those that were closed."""
        taken = list(self._closed)
        self._closed.clear()
        return taken

    def leave_out(self) -> None:
        """What comes now was not counted: the number of a report is left out, which tells the check."""
        self._close()
        self._number += 1

    def _make_room(self) -> None:
        if len(self._cells) + len(self._unstamped) >= CELLS_MAX:
            self._close()

    def _shrink(self) -> None:
        self._ranges = sum(len(cell.segments()) for cell in self._cells.values())
        if self._ranges >= RANGES_MAX // 2:
            self._close()

    def _close(self, *, is_last: bool = False, until_ms: int | None = None) -> None:
        counts = (Count(*key, tuple(cell.segments())) for key, cell in self._cells.items())
        unstamped = (Unstamped(*key, count) for key, count in self._unstamped.items())
        self._closed.append(
            Report(
                reporter=self._reporter,
                number=self._number,
                tier=self._tier,
                bucket_ms=self._bucket_ms,
                interval_ms=self._interval_ms,
                is_last=is_last,
                until_ms=until_ms,
                counts=tuple(counts),
                unstamped=tuple(unstamped),
                topics=self._topics,
            )
        )
        self._number += 1
        self._cells, self._unstamped, self._ranges = {}, {}, 0
