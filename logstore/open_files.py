"""Bounds the number of segment files that a process keeps open, however many partitions and segments it has.

A segment opens its file when it is first used, and keeps it open until others have been used more recently. Closing a
file with unsynced data loses nothing: the pages stay in the page cache, and Linux reports a failed write to the next
process that syncs the file.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

OPEN_FILES_MIN = 16
"""Work on one log uses a few segments at once."""


class Closable(Protocol):
    def release(self) -> None:
        """Close the file; the next use opens it again."""


class OpenFiles:
    """Segments with an open file, the least recently used first. For one thread."""

    __slots__ = ("_open", "files_max")

    def __init__(self, files_max: int) -> None:
        self.files_max = max(files_max, OPEN_FILES_MIN)
        self._open: OrderedDict[Closable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, segment: Closable) -> None:
        """The segment has opened its file."""
        self._open[segment] = None
        while len(self._open) > self.files_max:
            oldest, _ = self._open.popitem(last=False)
            oldest.release()

    def used(self, segment: Closable) -> None:
        self._open.move_to_end(segment)

    def remove(self, segment: Closable) -> None:
        """The segment has closed its file."""
        self._open.pop(segment, None)
