"""What one batch of a stream reads: the offsets, their ranges for each task, and the file that keeps them. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.admission import admit, hold
from raylog.raydp_bridge.offset_ranges import OffsetRange, plan_ranges, share_out
from raylog.raydp_bridge.partition_offsets import PartitionOffsets, parse_offsets, print_offsets
from raylog.raydp_bridge.read_options import Limits

VERSION = 1


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Where a batch starts and ends in each partition; both contain the same partitions."""

    starts: PartitionOffsets
    ends: PartitionOffsets

    @property
    def is_empty(self) -> bool:
        return self.starts == self.ends

    def shares(self, tasks: int, min_partitions: int | None) -> list[list[OffsetRange]]:
        """The ranges of each task. Without `min_partitions` the records of a partition are in one task, in order."""
        return share_out(plan_ranges(self.starts, self.ends, min_partitions=min_partitions), tasks)

    def to_json(self) -> str:
        starts, ends = print_offsets(self.starts), print_offsets(self.ends)
        return f'{{"version":{VERSION},"startOffsets":{starts},"endOffsets":{ends}}}\n'

    @classmethod
    def of_json(cls, text: str) -> BatchPlan:
        """Raises ConfigError."""
        try:
            parsed = json.loads(text)
            version, starts, ends = parsed["version"], parsed["startOffsets"], parsed["endOffsets"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigError("must be JSON with version, startOffsets and endOffsets") from None
        if version != VERSION:
            raise ConfigError(f"version={version!r}: only version {VERSION} is supported")
        plan = cls(
            parse_offsets("startOffsets", json.dumps(starts), least=0),
            parse_offsets("endOffsets", json.dumps(ends), least=0),
        )
        if plan.starts.keys() != plan.ends.keys() or any(plan.ends[tp] < start for tp, start in plan.starts.items()):
            raise ConfigError("endOffsets: must contain the partitions of startOffsets and not be before them")
        return plan


def plan_batch(
    starts: PartitionOffsets,
    latest: PartitionOffsets,
    limits: Limits,
    *,
    waited_ms: float,
    until: PartitionOffsets | None = None,
) -> BatchPlan:
    """The next batch of a stream that has read until `starts`, in the partitions that exist.

    `until` is the end that was fixed when a query with Trigger.AvailableNow was started; such a query does not wait for
    minOffsetsPerTrigger.
    """
    available = latest if until is None else hold(latest, until)
    if until is not None:
        limits = replace(limits, min_offsets=None)
    ends = {tp: available.get(tp, start) for tp, start in starts.items()}
    return BatchPlan(dict(starts), admit(starts, ends, limits, waited_ms=waited_ms))
