"""Where a share group begins in a partition without a start offset: share.auto.offset.reset."""

from __future__ import annotations

from raylog.config.consumer import EARLIEST, duration_ms
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.replication.partition import Partition


def first_offset(reset: str, partition: Partition, now: Now) -> int:
    """`reset` is earliest, latest, or by_duration:PnDTnHnMnS.

    Raises KafkaError(OFFSET_NOT_AVAILABLE) while a new leader does not know what is committed.
    """
    if reset == EARLIEST:
        return partition.log.log_start_offset
    if not partition.is_high_watermark_known:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    end = partition.high_watermark
    duration = duration_ms(reset)
    if duration is None:
        return end
    found = partition.log.offset_for_timestamp(max(now.wall_ms - duration, 0), upto=end)
    return end if found is None else found[0]
