"""Retires segments that retention deletes: renamed in two durable steps, and deleted file.delete.delay.ms later.

First the `.log` file of the oldest segment is renamed, and the segment is removed from the log. When the new name is
durable the other files follow, since a segment that reappears after a power failure needs its transaction index. Each
retirement is durable before the next one, so that a power failure leaves no gap.

In memory only: files that a stop leaves are deleted by the next start, by their names.
"""

from __future__ import annotations

from functools import partial

from raylog.logstore.deletion import Deletion
from raylog.logstore.durability import Durability
from raylog.logstore.log_producers import LogProducers
from raylog.logstore.segment import Segment
from raylog.logstore.segment_list import SegmentList


class Retirement:
    """The retirement of one log's segments. Raises the OSErrors of the disk; every step can be repeated."""

    __slots__ = ("_due", "_durability", "_producers", "_segments", "_unfinished")

    def __init__(self, segments: SegmentList, durability: Durability, producers: LogProducers) -> None:
        self._segments = segments
        self._durability = durability
        self._producers = producers
        self._unfinished: Segment | None = None
        """A segment whose `.log` is renamed and that is removed from the log; its other files are not renamed yet."""
        self._due: dict[str, int] = {}
        """Paths of renamed files, and when to delete them."""

    def begin_oldest(self) -> None:
        """Remove the oldest segment from the log; no segment may be unfinished. The caller calls `finish` next."""
        self._durability.sync_directory()  # a log without files would reuse offsets
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
        self._due.update(dict.fromkeys(renamed, due_ms))
        self._unfinished = None

    def retire(self, segment: Segment, *, due_ms: int) -> None:
        """Rename the files of a segment that compaction has replaced, to be deleted at `due_ms`."""
        segment.retire()
        renamed = [*segment.retire_rest(), *self._producers.retire_snapshot(segment.base_offset)]
        self._due.update(dict.fromkeys(renamed, due_ms))

    def deletions(self, now_ms: int) -> list[Deletion]:
        """Of the files that are due; a file is forgotten when it is deleted."""
        due = [(path, due_ms) for path, due_ms in self._due.items() if due_ms <= now_ms]
        return [Deletion(path, False, partial(self._deleted, path, due_ms)) for path, due_ms in due]

    def _deleted(self, path: str, due_ms: int) -> None:
        if self._due[path] == due_ms:  # otherwise another file has got this name
            del self._due[path]
