"""(shell) A topic as a Spark DataFrame: offsets are planned in the driver, each Spark task reads one range.

The plan is made when `read_topic` is called and does not move after that. However often Spark evaluates the frame or
repeats a task, it reads the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from raylog.client import range_reader
from raylog.core.errors import ConfigError
from raylog.protocol.records.arrow import choose_columns, read_arrow
from raylog.raydp_bridge.arrow import spark_schema
from raylog.raydp_bridge.offsets import EndingOffsets, OffsetRange, StartingOffsets, plan_ranges


class TopicReader(Protocol):
    """How topics are read; the module `raylog.client.range_reader` is the usual one.

    It is sent to the executors, so it must survive pickling (a module does, by its name).
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


def read_topic(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str,
    starting_offsets: StartingOffsets = "earliest",
    ending_offsets: EndingOffsets = "latest",
    columns: Sequence[str] | None = None,
    min_partitions: int | None = None,
    reader: TopicReader = range_reader,
) -> DataFrame:
    """The records of `topic` with the columns of Spark's Kafka source (`protocol.records.arrow`), one task per range.

    Columns that are not asked for are never built. Offsets are given as in `offsets`. Raises ConfigError for options
    that break a rule, before any task starts; as in Spark, a batch cannot start at "latest".
    """
    if starting_offsets == "latest":
        raise ConfigError("starting_offsets='latest': a batch that starts at the latest offset would always be empty")
    chosen = choose_columns(columns)
    earliest, latest = reader.topic_bounds(bootstrap_servers, topic)
    plan = plan_ranges(
        topic,
        earliest,
        latest,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        min_partitions=min_partitions,
    )
    tasks = spark.range(0, len(plan), 1, max(1, len(plan)))
    return tasks.mapInArrow(_task(plan, bootstrap_servers, chosen, reader), spark_schema(chosen))


def _task(
    plan: Sequence[OffsetRange], bootstrap_servers: str, columns: Sequence[str], reader: TopicReader
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """What runs in an executor: rows of indexes into the plan come in, record columns go out."""

    def read(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                each = plan[index]
                for position, batches in reader.fetch_batches(
                    bootstrap_servers,
                    each.topic,
                    each.partition,
                    start_offset=each.start_offset,
                    end_offset=each.end_offset,
                ):
                    yield from read_arrow(
                        batches,
                        topic=each.topic,
                        partition=each.partition,
                        columns=columns,
                        from_offset=position,
                        end_offset=each.end_offset,
                    )

    return read
