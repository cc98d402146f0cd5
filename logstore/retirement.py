"""How retention takes segments out of a log: renamed in two durable steps, and deleted file.delete.delay.ms later.

First the `.log` file of the oldest segment is renamed, and the segment leaves the log. When that name is durable the
other files follow: a segment that comes back after a power cut must have its transaction index. A segment is gone for
good before the next one goes, so that a power cut leaves no hole.

In memory only: what a stop leaves, the next start deletes by its name.
"""

from __future__ import annotations

from functools import partial

from raylog.logstore.deletion import Deletion
from raylog.logstore.durability import Durability
from raylog.logstore.log_producers import LogProducers
from raylog.logstore.segment import Segment
from raylog.logstore.segment_list import SegmentList


class Retirement:
    """Of the segments of one log. Raises OSError as the disk does; every step can then be done again."""

    __slots__ = ("_due", "_durability", "_producers", "_segments", "_unfinished")

    def __init__(self, segments: SegmentList, durability: Durability, producers: LogProducers) -> None:
        self._segments = segments
        self._durability = durability
        self._producers = producers
        self._unfinished: Segment | None = None
        """Its `.log` is renamed, and it has left the log; its other files are not renamed yet."""
        self._due: list[tuple[int, str]] = []
        """(when to delete it, path) of renamed files."""

    def begin_oldest(self) -> None:
        """The oldest segment leaves the log; none may be unfinished. `finish` is to be called next."""
        self._durability.sync_directory()  # a log without any file would begin again at an offset given before
        segment = self._segments[0]
        segment.retire()
        self._unfinished = segment
        self._durability.directory_changed()
        self._segments.drop_oldest()

    def finish(self, *, due_ms: int) -> None:
        """Rename what is left of the segment that was begun, if one was; all of it is to be deleted at `due_ms`."""
        segment = self._unfinished
        if segment is None:
            return
        self._durability.sync_directory()
        renamed = [*segment.retire_rest(), *self._producers.retire_snapshot(segment.base_offset)]
        self._due += [(due_ms, path) for path in renamed]
        self._unfinished = None

    def deletions(self, now_ms: int) -> list[Deletion]:
        """Of the files that are due; a file is forgotten when it is deleted."""
        return [
            Deletion(path, False, partial(self._due.remove, (due_ms, path)))
            for due_ms, path in self._due
            if due_ms <= now_ms
        ]
