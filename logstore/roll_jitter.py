"""By how much earlier than `segment.ms` a segment is rolled, so that logs which began together do not roll together."""

from __future__ import annotations

from zlib import crc32

from raylog.core.ids import TopicPartition
from raylog.logstore.segment import Segment
from raylog.logstore.settings import LogSettings


def roll_jitter_ms(topic_partition: TopicPartition, segment: Segment, settings: LogSettings) -> int:
    """Of [0, segment.jitter.ms), at most of [0, segment.ms); the same whenever it is asked about the same segment.

    Kafka draws it anew at each start. Here it follows from the names: as well spread, and a log that is opened again
    keeps its time.
    """
    if not settings.segment_jitter_ms:
        return 0
    name = f"{topic_partition}@{segment.base_offset}"
    return crc32(name.encode()) % min(settings.segment_jitter_ms, settings.segment_ms)
