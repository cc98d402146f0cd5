"""Plans the offsets that a job reads and splits them into tasks. Pure: the caller provides the partitions' bounds.

Offsets are given as in Spark's own Kafka source, so that a job can be ported by changing one line:

- "earliest" and "latest" apply to all partitions;
- a mapping has the offset of each partition, where -2 stands for earliest and -1 for latest. It must contain every
  partition of the topic and no other, so that a missing partition is an error;
- starting offsets are inclusive, ending offsets exclusive.

Source: Spark's "Structured Streaming + Kafka Integration Guide", startingOffsets, endingOffsets, minPartitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from raylog.core.errors import ConfigError

EARLIEST = -2
LATEST = -1
_NAMED: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}

StartingOffsets = Literal["earliest", "latest"] | Mapping[int, int]
EndingOffsets = Literal["latest"] | Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets that one task reads: `start_offset` inclusive, `end_offset` exclusive, never empty.

    A compacted or transactional topic has fewer records than offsets. The task finds the leader itself, since it may
    have changed after the planning.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def offset_count(self) -> int:
        return self.end_offset - self.start_offset


def plan_ranges(
    topic: str,
    earliest: Mapping[int, int],
    latest: Mapping[int, int],
    *,
    starting_offsets: StartingOffsets,
    ending_offsets: EndingOffsets,
    min_partitions: int | None = None,
) -> list[OffsetRange]:
    """The ranges to read, ordered by partition and offset; empty partitions have none.

    `earliest` and `latest` map every partition to its log start offset and to the offset after its last readable
    record. With `min_partitions`, ranges are split until there are that many, or each has one offset. The largest
    pieces are split first, so that tasks are as even as possible.
    Raises ConfigError for an offset outside the partition, an end before its start, and a mapping with missing or
    unknown partitions.
    """
    if min_partitions is not None and min_partitions < 1:
        raise ConfigError(f"min_partitions={min_partitions}: must be at least 1")
    starts = _resolve("starting_offsets", starting_offsets, earliest, latest)
    ends = _resolve("ending_offsets", ending_offsets, earliest, latest)
    whole = []
    for partition in sorted(latest):
        start, end = starts[partition], ends[partition]
        if end < start:
            raise ConfigError(f"ending_offsets[{partition}]={end}: must be at least the starting offset {start}")
        if end > start:
            whole.append(OffsetRange(topic, partition, start, end))
    return whole if min_partitions is None else _split(whole, min_partitions)


def _resolve(
    key: str, asked: str | Mapping[int, int], earliest: Mapping[int, int], latest: Mapping[int, int]
) -> dict[int, int]:
    """The offset of every partition, each within [earliest, latest]."""
    if isinstance(asked, str):
        if asked not in _NAMED:
            raise ConfigError(f"{key}={asked!r}: must be 'earliest', 'latest' or an offset for each partition")
        asked = dict.fromkeys(latest, _NAMED[asked])
    _check_partitions(key, asked, latest)
    resolved = {}
    for partition, offset in asked.items():
        low, high = earliest[partition], latest[partition]
        if offset == EARLIEST:
            if key == "ending_offsets":
                raise ConfigError(f"{key}[{partition}]={offset}: a read cannot end at the earliest offset")
            resolved[partition] = low
        elif offset == LATEST:
            resolved[partition] = high
        elif low <= offset <= high:
            resolved[partition] = offset
        else:
            raise ConfigError(f"{key}[{partition}]={offset}: must be between {low} (earliest) and {high} (latest)")
    return resolved


def _check_partitions(key: str, asked: Mapping[int, int], known: Mapping[int, int]) -> None:
    missing = sorted(known.keys() - asked.keys())
    invented = sorted(asked.keys() - known.keys())
    if missing:
        raise ConfigError(f"{key}: must contain the partitions {missing}; use -2 for earliest and -1 for latest")
    if invented:
        raise ConfigError(f"{key}: contains the partitions {invented}, which the topic does not have")


def _split(ranges: list[OffsetRange], pieces_wanted: int) -> list[OffsetRange]:
    """Split ranges until there are `pieces_wanted`, or each has one offset; the largest pieces are split first."""
    pieces = [1] * len(ranges)
    largest_first: list[tuple[float, int]] = [(-each.offset_count, index) for index, each in enumerate(ranges)]
    heapq.heapify(largest_first)
    for _ in range(min(pieces_wanted, sum(each.offset_count for each in ranges)) - len(ranges)):
        _, index = largest_first[0]
        pieces[index] += 1
        heapq.heapreplace(largest_first, (-ranges[index].offset_count / pieces[index], index))
    return [piece for each, count in zip(ranges, pieces, strict=True) for piece in _cut(each, count)]


def _cut(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """`count` consecutive ranges whose sizes differ by at most one."""
    bounds = [whole.start_offset + whole.offset_count * index // count for index in range(count + 1)]
    for start, end in pairwise(bounds):
        yield OffsetRange(whole.topic, whole.partition, start, end)
