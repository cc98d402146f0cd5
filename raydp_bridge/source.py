"""(shell) Topics as a Spark DataFrame: the driver plans offset ranges, each Spark task reads one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.protocol.records.isolation import IsolationLevel
from raylog.raydp_bridge.arrow import spark_schema
from raylog.raydp_bridge.offset_ranges import OffsetRange
from raylog.raydp_bridge.ranges import TopicReader, brokers_of, plan_read, read_range
from raylog.raydp_bridge.read_options import EndingOffsets, ReadOptions, StartingOffsets


def read(spark: SparkSession, options: Mapping[str, Any], *, reader: TopicReader = range_reader) -> DataFrame:
    """The records that the options of Spark's own Kafka source select, with its columns (`protocol.records.arrow`).

        read(spark, {"kafka.bootstrap.servers": servers, "subscribe": "flights,planes", "startingTimestamp": noon_ms})

    docs/spark.md lists the options. There is one task per range of offsets; a task on the node of a partition's leader
    reads its mapped files. Only the columns in the option `columns` are built. Raises ConfigError for invalid options,
    and KafkaError if a topic does not exist, before any task starts.
    """
    parsed = ReadOptions.parse(options, streaming=False)
    return _frame(spark, parsed, brokers_of(parsed), reader)


def read_topic(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    bootstrap_servers: str | None = None,
    client_config: Mapping[str, Any] | None = None,
    starting_offsets: StartingOffsets = "earliest",
    ending_offsets: EndingOffsets = "latest",
    columns: Sequence[str] | None = None,
    isolation_level: IsolationLevel | None = None,
    min_partitions: int | None = None,
    skip_malformed: bool = False,
    fail_on_data_loss: bool = True,
    reader: TopicReader = range_reader,
) -> DataFrame:
    """The records of one topic or of several, as by `read`, with all columns by default.

    `client_config` contains properties of Kafka's Java client, for listeners with TLS or a login. Offsets are
    "earliest" or "latest", or a mapping from partition to offset, or from topic to such a mapping; -2 stands for
    earliest and -1 for latest. `isolation_level`, the option kafka.isolation.level of Spark's own source, is that of
    `client_config` by default, or read_committed: the records of aborted transactions are left out, and the latest
    offset is the last stable one. A batch whose records cannot be decoded fails its task, unless `skip_malformed`: then
    it is skipped, and a warning in the log of the task names its offsets. Records that no longer exist are an error,
    unless `fail_on_data_loss` is false. Raises ConfigError for invalid options, before any task starts.
    """
    options = ReadOptions.of(
        topic,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        columns=columns,
        min_partitions=min_partitions,
        skip_malformed=skip_malformed,
        fail_on_data_loss=fail_on_data_loss,
    )
    brokers = ClientConfig.of(bootstrap_servers, client_config, isolation_level=isolation_level)
    return _frame(spark, options, brokers, reader)


def _frame(spark: SparkSession, options: ReadOptions, brokers: ClientConfig, reader: TopicReader) -> DataFrame:
    plan = plan_read(options, brokers, reader)
    tasks = spark.range(0, len(plan), 1, max(1, len(plan)))
    return tasks.mapInArrow(_task(plan, options, brokers, reader), spark_schema(options.columns))


def _task(
    plan: Sequence[OffsetRange], options: ReadOptions, brokers: ClientConfig, reader: TopicReader
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for the executors: it takes rows of indexes into the plan and returns record columns."""
    columns, skip_malformed, fail = options.columns, options.skip_malformed, options.fail_on_data_loss

    def read(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                yield from read_range(
                    plan[index], brokers, columns, reader, skip_malformed=skip_malformed, fail_on_data_loss=fail
                )

    return read
