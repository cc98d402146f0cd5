"""Which segments of a log need not be kept: by age, by size, by log start offset. The log deletes them.

A segment is too old when its newest record is; that may be the active one, as in Kafka. By size only as many go as
leave retention.bytes behind, and what lies below the log start offset goes once its segment is closed.
"""

from __future__ import annotations

from raylog.logstore.segment import Segment
from raylog.logstore.segment_list import SegmentList
from raylog.logstore.settings import LogSettings


def count_deletable(
    segments: SegmentList, settings: LogSettings, *, log_start_offset: int, limit: int, now_ms: int
) -> int:
    """How many, from the oldest on; none that reaches above `limit` (exclusive), and never an empty one.

    Raises OSError as the disk does.
    """
    size_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments:
        if segment.next_offset > limit or not segment.size_bytes:
            break
        below_start = segment.next_offset <= log_start_offset and segment is not segments.active
        too_large = 0 <= settings.retention_bytes <= size_bytes - segment.size_bytes
        if not (below_start or too_large or _is_too_old(segment, settings.retention_ms, now_ms)):
            break
        size_bytes -= segment.size_bytes
        count += 1
    return count


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    for certain in (False, True):  # the cheap answer may keep a segment, but not delete one
        newest = segment.largest_timestamp(certain=certain)
        if now_ms - (newest if newest >= 0 else segment.created_ms) <= retention_ms:
            return False
    return True
