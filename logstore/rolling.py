"""Decides when to roll the active segment before an append: by size, age, full index, or relative offset overflow.

The age of a segment is that of its first batch, by the timestamps of the records. With segment.jitter.ms, logs that
were created together roll at different times.
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
    """Whether a record set of this size, last offset and largest timestamp must go to a new segment.

    Raises INVALID_RECORD if it does not fit a new one either, and the OSErrors of the disk.
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
    if settings.is_compacted:
        age_ms_max = min(age_ms_max, settings.max_compaction_lag_ms)
    if settings.segment_jitter_ms:
        age_ms_max -= roll_jitter_ms(topic_partition, active, min(settings.segment_jitter_ms, age_ms_max))
    return age_ms > age_ms_max or active.index_is_full(settings.segment_index_bytes)


def roll_jitter_ms(topic_partition: TopicPartition, segment: Segment, limit_ms: int) -> int:
    """A value in [0, limit_ms), which is not empty; constant for a segment.

    The limit is segment.jitter.ms, or the largest age of a segment if that is less, whereas Kafka does not consider
    max.compaction.lag.ms, so that every append could roll. Kafka draws a random value at each start. Here it is a hash
    of topic, partition and offset, which is spread as well and does not change when the log is reopened.
    """
    name = f"{topic_partition}@{segment.base_offset}"
    return crc32(name.encode()) % limit_ms
