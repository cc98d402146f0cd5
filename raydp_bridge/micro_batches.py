"""What a micro-batch of Spark reads, from the offsets in the checkpoint of its query. Pure.

Spark keeps the end offsets of each batch and gives them back as start and end of the batch that is to be planned, the
first time and when it is repeated after a restart. So the plan depends on these two alone, and on the earliest offsets
of the partitions that the batch before did not have.
"""

from __future__ import annotations

from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.offset_ranges import OffsetRange, plan_ranges
from raylog.raydp_bridge.partition_offsets import PartitionOffsets


def ranges_between(
    start: PartitionOffsets, end: PartitionOffsets, earliest: PartitionOffsets, *, min_partitions: int | None = None
) -> tuple[list[OffsetRange], list[str]]:
    """The ranges of the batch from `start` to `end`, one per task, and sentences on what cannot be read any more.

    `earliest` has the partitions that only `end` contains, as far as they exist.
    """
    losses = [f"{tp} is gone" for tp in sorted(start.keys() - end.keys())]
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for tp, last in sorted(end.items()):
        first = start.get(tp, earliest.get(tp))
        if first is None:
            losses.append(f"{tp} is gone")
        elif first > last:
            losses.append(f"the offset of {tp} was changed from {first} to {last}")
        else:
            starts[tp], ends[tp] = first, last
            if tp not in start and first > 0:
                losses.append(f"the added partition {tp} starts at offset {first} instead of 0")
    return plan_ranges(starts, ends, min_partitions=min_partitions), losses
