"""Plans the offsets that a job reads and splits them into tasks. Pure: the caller provides the partitions' bounds.

Positions are those of Spark's own Kafka source: "earliest" and "latest" apply to all partitions; a mapping has the
offset of each partition, where -2 stands for earliest and -1 for latest, and must contain every partition and no other,
so that a missing one is an error; or the first record at or after a timestamp. Starting offsets are inclusive, ending
offsets exclusive.

Where records that should have been read no longer exist, a function returns a sentence that says so beside its result;
the option failOnDataLoss decides whether it is an error (see `ranges.report_losses`).

Source: Spark's "Structured Streaming + Kafka Integration Guide", startingOffsets, endingOffsets, minPartitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.partition_offsets import EARLIEST, LATEST, PartitionOffsets
from raylog.raydp_bridge.read_options import Position


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

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The log start offset of each existing partition, and the offset after its last readable record."""

    earliest: PartitionOffsets
    latest: PartitionOffsets


@dataclass(frozen=True, slots=True)
class Resolved:
    """An offset for each partition, and what was lost."""

    offsets: dict[TopicPartition, int]
    losses: tuple[str, ...] = ()


def resolve(position: Position, bounds: Bounds, found: PartitionOffsets) -> Resolved:
    """The offsets of the partitions in `bounds`; `found` has those found by the timestamps of `position`, -1 for none.

    An offset before the earliest is a loss, and the earliest takes its place. Raises ConfigError for an offset after
    the latest, and for missing or unknown partitions.
    """
    offsets: dict[TopicPartition, int] = {}
    losses = []
    for tp, value in sorted(position.of(bounds.latest).items()):
        earliest, latest = bounds.earliest[tp], bounds.latest[tp]
        if position.by_time:
            if found[tp] < 0 and not position.or_latest:
                raise ConfigError(
                    f"{position.key}: {tp} has no record at or after the timestamp {value}; set "
                    "startingOffsetsByTimestampStrategy to 'latest' to start such partitions at their latest offset"
                )
            # A record may have been deleted, or appended, since it was found.
            offsets[tp] = max(earliest, min(found[tp], latest)) if found[tp] >= 0 else latest
        elif value in (EARLIEST, LATEST):
            offsets[tp] = earliest if value == EARLIEST else latest
        elif value > latest:
            raise ConfigError(
                f"{position.key}: {tp}: {value} must be between {earliest} (earliest) and {latest} (latest)"
            )
        else:
            offsets[tp] = max(earliest, value)
            if value < earliest:
                losses.append(f"{position.key}: {tp}: offset {value} no longer exists, the earliest is {earliest}")
    return Resolved(offsets, tuple(losses))


def continue_from(previous: PartitionOffsets, bounds: Bounds) -> Resolved:
    """Where a stream that has read until `previous` goes on in the partitions of `bounds`, and what it has lost.

    Partitions that are new start at the earliest offset. Those whose next offset was deleted go on at the earliest;
    those that end before it, because they were truncated or created again, at the latest, as in Spark.
    """
    offsets: dict[TopicPartition, int] = {}
    losses = [f"{tp} is gone" for tp in sorted(previous.keys() - bounds.latest.keys())]
    for tp in sorted(bounds.latest):
        earliest, latest = bounds.earliest[tp], bounds.latest[tp]
        if tp not in previous:
            offsets[tp] = min(earliest, latest)
            if earliest > 0:
                losses.append(f"the added partition {tp} starts at offset {earliest} instead of 0")
        elif previous[tp] > latest:
            offsets[tp] = latest
            losses.append(f"the offset of {tp} was changed from {previous[tp]} to {latest}")
        else:
            offsets[tp] = min(max(previous[tp], earliest), latest)
            if previous[tp] < earliest:
                losses.append(f"{tp}: offset {previous[tp]} no longer exists, the earliest is {earliest}")
    return Resolved(offsets, tuple(losses))


def plan_ranges(
    starts: PartitionOffsets, ends: PartitionOffsets, *, min_partitions: int | None = None, key: str = "endingOffsets"
) -> list[OffsetRange]:
    """The ranges to read, ordered by topic, partition and offset; empty partitions have none.

    With `min_partitions`, ranges are split until there are that many, or each has one offset. The largest pieces are
    split first, so that tasks are as even as possible. Raises ConfigError that names `key` for an end before its start.
    """
    whole = []
    for tp in sorted(ends):
        start, end = starts[tp], ends[tp]
        if end < start:
            raise ConfigError(f"{key}: {tp}: the end {end} must be at least the starting offset {start}")
        if end > start:
            whole.append(OffsetRange(tp.topic, tp.partition, start, end))
    return whole if min_partitions is None else _split(whole, min_partitions)


def share_out(ranges: Iterable[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """The ranges for each of so many tasks, with as even a number of offsets as whole ranges allow.

    The ranges of a task are in order. The result depends on nothing but the arguments.
    """
    shares: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    smallest_first = [(0, index) for index in range(tasks)]
    for each in sorted(ranges, key=lambda each: (-each.offset_count, each.tp, each.start_offset)):
        count, index = smallest_first[0]
        shares[index].append(each)
        heapq.heapreplace(smallest_first, (count + each.offset_count, index))
    for share in shares:
        share.sort(key=lambda each: (each.tp, each.start_offset))
    return shares


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
