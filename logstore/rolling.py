"""When the active segment is closed before an append: by size, age, full index, or an offset too far from its base.

Its age is that of its first batch, told by the timestamps of the records. segment.jitter.ms lets logs that began
together roll apart.
"""

from __future__ import annotations

from zlib import crc32

from raylog.core.ids import TopicPartition
from raylog.logstore.record_set import invalid_record
from raylog.logstore.segment import RELATIVE_OFFSET_MAX, Segment
from raylog.logstore.settings import LogSettings


def must_roll(
    active: Segment,
    settings: LogSettings,
    topic_partition: TopicPartition,
    *,
    record_bytes: int,
    last_offset: int,
    largest_timestamp: int,
    now_ms: int,
) -> bool:
    """Whether a record set of so many bytes, up to that offset and timestamp, belongs into a new segment.

    Raises INVALID_RECORD where a new one would not help, and OSError as the disk does.
    """
    too_far = last_offset - active.base_offset > RELATIVE_OFFSET_MAX
    if active.size_bytes == 0:
        if too_far:
            raise invalid_record(f"offset {last_offset} is too far from the segment's first, {active.base_offset}")
        return False
    if too_far or active.size_bytes + record_bytes > settings.segment_bytes:
        return True
    first_timestamp = active.first_timestamp()
    age_ms = largest_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - active.created_ms
    age_ms_max = settings.segment_ms
    if settings.segment_jitter_ms:
        age_ms_max -= roll_jitter_ms(topic_partition, active, settings)
    return age_ms > age_ms_max or active.index_is_full(settings.segment_index_bytes)


def roll_jitter_ms(topic_partition: TopicPartition, segment: Segment, settings: LogSettings) -> int:
    """Of [0, segment.jitter.ms), which is not empty, and at most of [0, segment.ms).

    The same whenever it is asked about the same segment.
    Kafka draws it anew at each start. Here it follows from the names: as well spread, and a log that is opened again
    keeps its time.
    """
    name = f"{topic_partition}@{segment.base_offset}"
    return crc32(name.encode()) % min(settings.segment_jitter_ms, settings.segment_ms)
