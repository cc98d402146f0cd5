"""Selects the segments that retention deletes: by time, by size and by log start offset.

A segment has expired when its newest record has; as in Kafka it may be the active one. By size, segments are deleted as
long as at least retention.bytes remain; neither if cleanup.policy does not contain delete. A closed segment below the
log start offset is deleted.
"""

from __future__ import annotations

from raylog.logstore.segment import Segment
from raylog.logstore.segment_list import SegmentList
from raylog.logstore.settings import LogSettings


def count_deletable(
    segments: SegmentList, settings: LogSettings, *, log_start_offset: int, limit: int, now_ms: int
) -> int:
    """The number of segments to delete, from the oldest; none that extends above `limit` (exclusive) or is empty.

    Raises the OSErrors of the disk.
    """
    size_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments:
        if segment.next_offset > limit or not segment.size_bytes:
            break
        below_start = segment.next_offset <= log_start_offset and segment is not segments.active
        too_large = settings.is_deleted and 0 <= settings.retention_bytes <= size_bytes - segment.size_bytes
        too_old = settings.is_deleted and _is_too_old(segment, settings.retention_ms, now_ms)
        if not (below_start or too_large or too_old):
            break
        size_bytes -= segment.size_bytes
        count += 1
    return count


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    for certain in (False, True):  # the index entry is enough to keep a segment, but not to delete it
        newest = segment.largest_timestamp(certain=certain)
        if now_ms - (newest if newest >= 0 else segment.created_ms) <= retention_ms:
            return False
    return True
