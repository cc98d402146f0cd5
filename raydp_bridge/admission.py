"""How much of what is available the next batch of a stream reads. Pure.

Source: Spark's "Structured Streaming + Kafka Integration Guide", maxOffsetsPerTrigger, minOffsetsPerTrigger,
maxTriggerDelay.
"""

from __future__ import annotations

from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.partition_offsets import PartitionOffsets
from raylog.raydp_bridge.read_options import Limits


def admit(
    starts: PartitionOffsets, ends: PartitionOffsets, limits: Limits, *, waited_ms: float
) -> dict[TopicPartition, int]:
    """The end offsets of the next batch, for a stream that has reached `starts` and could read until `ends`.

    Both contain the same partitions. While there are fewer offsets than minOffsetsPerTrigger, and the last batch with
    records is not older than maxTriggerDelay (`waited_ms`), the batch is empty. maxOffsetsPerTrigger is split over the
    partitions in proportion to what each has available; as in Spark each gets at least one, so that small partitions
    make progress.
    """
    available = {tp: max(0, ends[tp] - starts[tp]) for tp in starts}
    total = sum(available.values())
    if limits.min_offsets is not None and total < limits.min_offsets and waited_ms < limits.max_delay_ms:
        return dict(starts)
    if limits.max_offsets is None or total <= limits.max_offsets:
        return {tp: starts[tp] + count for tp, count in available.items()}
    share = limits.max_offsets
    return {tp: starts[tp] + min(count, max(1, share * count // total)) for tp, count in available.items()}


def hold(latest: PartitionOffsets, fixed: PartitionOffsets) -> dict[TopicPartition, int]:
    """The ends of what is available to Trigger.AvailableNow, which were `fixed` at its start, in partitions that still
    exist. Partitions that were added since belong to the next run."""
    return {tp: min(latest[tp], end) for tp, end in fixed.items() if tp in latest}
