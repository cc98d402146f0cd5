"""(shell) What Spark tasks and Ray Data tasks have in common: how topics are read, the plan, and the rows of one range.

The plan is made once, by the caller, and does not move after that. However often a task is repeated, it reads the same
offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from raylog.client import range_reader
from raylog.core.errors import ConfigError
from raylog.protocol.records.arrow import read_arrow
from raylog.raydp_bridge.offsets import EndingOffsets, OffsetRange, StartingOffsets, plan_ranges


class TopicReader(Protocol):
    """How topics are read; the module `raylog.client.range_reader` is the usual one.

    It is sent to the tasks, so it must survive pickling (a module does, by its name).
    """

    def topic_bounds(self, bootstrap_servers: str, topic: str) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Earliest and latest offset of every partition. Raises KafkaError when there is no such topic."""

    def fetch_batches(
        self, bootstrap_servers: str, topic: str, partition: int, *, start_offset: int, end_offset: int
    ) -> Iterator[tuple[int, memoryview]]:
        """(position, whole batches) of [start_offset, end_offset) in order, of a size that fits in memory a few times.

        Records before `position` are not meant, though the first batch may have them; nor are those from `end_offset`
        on. A view lives until the next one is asked for. It finds the leader itself, and again when it moves. It ends
        when `end_offset` is reached, also where the last offsets hold no record. Raises KafkaError when a record of the
        range is gone.
        """


def plan_topic(
    topic: str,
    *,
    bootstrap_servers: str,
    starting_offsets: StartingOffsets,
    ending_offsets: EndingOffsets,
    min_partitions: int | None,
    reader: TopicReader = range_reader,
) -> list[OffsetRange]:
    """The ranges to read, one for each task. Raises ConfigError for options that break a rule, KafkaError where there
    is no such topic. As in Spark, a batch cannot start at "latest"."""
    if starting_offsets == "latest":
        raise ConfigError("starting_offsets='latest': a batch that starts at the latest offset would always be empty")
    earliest, latest = reader.topic_bounds(bootstrap_servers, topic)
    return plan_ranges(
        topic,
        earliest,
        latest,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        min_partitions=min_partitions,
    )


def read_range(
    each: OffsetRange, bootstrap_servers: str, columns: Sequence[str], reader: TopicReader = range_reader
) -> Iterator[pa.RecordBatch]:
    """The rows of one range with these columns and no other, in batches of some megabytes."""
    for position, batches in reader.fetch_batches(
        bootstrap_servers, each.topic, each.partition, start_offset=each.start_offset, end_offset=each.end_offset
    ):
        yield from read_arrow(
            batches,
            topic=each.topic,
            partition=each.partition,
            columns=columns,
            from_offset=position,
            end_offset=each.end_offset,
        )
