"""(shell) The common part of Spark tasks and Ray Data tasks: planning, and reading the rows of one range.

The driver makes the plan once. A task that is retried reads the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.client.partition_reader import log_malformed
from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.records.arrow import read_arrow
from raylog.raydp_bridge.offset_ranges import EndingOffsets, OffsetRange, StartingOffsets, plan_ranges


class TopicReader(Protocol):
    """Reads topics; the default is the module `raylog.client.range_reader`.

    It is sent to the tasks, so it must be picklable (a module is, by its name).
    """

    def topic_bounds(self, brokers: ClientConfig, topic: str) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Earliest offset of every partition, and the end of what may be read. Raises KafkaError if the topic does not
        exist."""

    def fetch_batches(
        self, brokers: ClientConfig, topic: str, partition: int, *, start_offset: int, end_offset: int
    ) -> Iterator[Chunk]:
        """Complete batches of [start_offset, end_offset) in order, a few megabytes at a time.

        Callers ignore records before the `start` of a chunk, which the first batch may contain, those from `end_offset`
        on, and those of its `aborted` transactions. A chunk is valid until the next one is requested. The reader finds
        the leader, also after it changes. It ends at `end_offset`, even if no record has the last offsets. Raises
        KafkaError if a record of the range was deleted.
        """


def plan_topic(
    topic: str,
    *,
    brokers: ClientConfig,
    starting_offsets: StartingOffsets,
    ending_offsets: EndingOffsets,
    min_partitions: int | None,
    reader: TopicReader = range_reader,
) -> list[OffsetRange]:
    """The ranges to read, one per task. Raises ConfigError for invalid options, and KafkaError if the topic does not
    exist. As in Spark, a batch cannot start at "latest"."""
    if starting_offsets == "latest":
        raise ConfigError("starting_offsets='latest': a batch that starts at the latest offset is always empty")
    earliest, latest = reader.topic_bounds(brokers, topic)
    return plan_ranges(
        topic,
        earliest,
        latest,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        min_partitions=min_partitions,
    )


def read_range(
    each: OffsetRange,
    brokers: ClientConfig,
    columns: Sequence[str],
    reader: TopicReader = range_reader,
    *,
    skip_malformed: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of one range with these columns, in batches of a few megabytes."""
    tp = TopicPartition(each.topic, each.partition)
    for chunk in reader.fetch_batches(
        brokers, each.topic, each.partition, start_offset=each.start_offset, end_offset=each.end_offset
    ):
        yield from read_arrow(
            chunk.records,
            topic=each.topic,
            partition=each.partition,
            columns=columns,
            from_offset=chunk.start,
            end_offset=each.end_offset,
            on_malformed=partial(log_malformed, tp) if skip_malformed else None,
            aborted=chunk.aborted,
        )
