"""(shell) A topic as a Spark DataFrame: the driver plans offset ranges, each Spark task reads one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.protocol.records.arrow import choose_columns
from raylog.protocol.records.isolation import IsolationLevel
from raylog.raydp_bridge.arrow import spark_schema
from raylog.raydp_bridge.offset_ranges import EndingOffsets, OffsetRange, StartingOffsets
from raylog.raydp_bridge.ranges import TopicReader, plan_topic, read_range


def read_topic(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    client_config: Mapping[str, Any] | None = None,
    starting_offsets: StartingOffsets = "earliest",
    ending_offsets: EndingOffsets = "latest",
    columns: Sequence[str] | None = None,
    isolation_level: IsolationLevel | None = None,
    min_partitions: int | None = None,
    skip_malformed: bool = False,
    reader: TopicReader = range_reader,
) -> DataFrame:
    """The records of `topic` with the columns of Spark's Kafka source (`protocol.records.arrow`), one task per range.

    A task on the node of a partition's leader reads its mapped files. Columns that are not requested are not built.
    `client_config` contains properties of Kafka's Java client, for listeners with TLS or a login. Offsets are given as
    in `offset_ranges`. `isolation_level`, the option kafka.isolation.level of Spark's own source, is that of
    `client_config` by default, or read_committed: the records of aborted transactions are left out, and the latest
    offset is the last stable one. A batch whose records cannot be decoded fails its task, unless `skip_malformed`: then
    it is skipped, and a warning in the log of the task names its offsets. Raises ConfigError for invalid options,
    before any task starts.
    """
    chosen = choose_columns(columns)
    brokers = ClientConfig.of(bootstrap_servers, client_config, isolation_level=isolation_level)
    plan = plan_topic(
        topic,
        brokers=brokers,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        min_partitions=min_partitions,
        reader=reader,
    )
    tasks = spark.range(0, len(plan), 1, max(1, len(plan)))
    return tasks.mapInArrow(_task(plan, brokers, chosen, reader, skip_malformed=skip_malformed), spark_schema(chosen))


def _task(
    plan: Sequence[OffsetRange],
    brokers: ClientConfig,
    columns: Sequence[str],
    reader: TopicReader,
    *,
    skip_malformed: bool,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for the executors: it takes rows of indexes into the plan and returns record columns."""

    def read(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                yield from read_range(plan[index], brokers, columns, reader, skip_malformed=skip_malformed)

    return read
