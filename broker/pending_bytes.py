"""Counts the bytes that were appended to logs and cannot be read yet, for requests that wait for a number of bytes.

An offset of each log, such as the high watermark, moves over what was appended, and each append is reported once the
offset has passed its end. Only appends that are pending take memory.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from raylog.core.ids import Offset, TopicPartition

APPENDS_MAX: Final = 256
"""Pending appends of a log that are counted separately; more are added to the last one."""


class PendingBytes:
    """The pending bytes of all logs, with respect to one kind of offset."""

    def __init__(self) -> None:
        self._of_log: dict[TopicPartition, list[tuple[Offset, int]]] = {}
        """Where the offset is, with 0 bytes, then the end offset of each append, with its bytes."""

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._of_log

    def appended(self, tp: TopicPartition, size_bytes: int, *, end_offset: Offset, upto: Offset) -> None:
        """The log has grown up to `end_offset`, while the offset is `upto`."""
        appends = self._of_log.get(tp)
        if appends is None:
            self._of_log[tp] = [(upto, 0), (end_offset, size_bytes)]
            return
        if len(appends) > APPENDS_MAX:
            size_bytes += appends.pop()[1]
        appends.append((end_offset, size_bytes))

    def passed(self, tp: TopicPartition, upto: Offset) -> int:
        """The offset is `upto` now: returns the bytes that it has passed.

        Those of an append that it is inside of are returned too, and again when it moves on: a request may count too
        many bytes and then reads in vain, but never too few.
        """
        appends = self._of_log.get(tp)
        if appends is None:
            return 0
        if appends[-1][0] <= upto:
            del self._of_log[tp]
            return sum([size_bytes for _, size_bytes in appends])
        if upto <= appends[0][0]:
            return 0
        count = bisect_right(appends, upto, key=lambda append: append[0])
        is_inside = appends[count - 1][0] < upto
        passed_bytes = sum([size_bytes for _, size_bytes in appends[: count + is_inside]])
        appends[:count] = [(upto, 0)]
        return passed_bytes

    def forget(self, tp: TopicPartition) -> None:
        self._of_log.pop(tp, None)
