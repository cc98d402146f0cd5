"""The highest offset that was ever published to processes that map a log's files.

A truncation below it must not shrink the mapped files: a process that accesses a removed page gets a SIGBUS.
"""

from __future__ import annotations

from raylog.core.ids import Offset
from raylog.logstore.segment_list import SegmentList


class Publication:
    """The publication of one log. An earlier process may have published everything that the log had on opening."""

    __slots__ = ("_offset", "_segments")

    def __init__(self, segments: SegmentList, log_end_offset: Offset) -> None:
        self._segments = segments
        self._offset = log_end_offset

    def publish(self, upto: Offset, *, log_end_offset: Offset) -> tuple[int, int]:
        """(base offset of the segment that contains `upto`, position in it, a batch boundary). Raises OSError."""
        self._offset = max(self._offset, upto)
        if upto >= log_end_offset:
            active = self._segments.active
            return active.base_offset, active.size_bytes
        segment, position = self._segments.place_of(upto)
        return segment.base_offset, position

    def reaches(self, offset: Offset) -> bool:
        """Whether a record from `offset` on may be mapped by another process."""
        return offset < self._offset

    def truncated(self, log_end_offset: Offset) -> None:
        self._offset = min(self._offset, log_end_offset)
