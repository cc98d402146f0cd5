"""A topic read by Spark executors is complete, in the planned tasks, with Spark's names and types."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from raylog.client.client_config import ClientConfig
from raylog.core.errors import ConfigError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.raydp_bridge.partition_offsets import LATEST
from raylog.raydp_bridge.ranges import TopicReader
from raylog.raydp_bridge.source import read_topic

pytestmark = pytest.mark.spark

NEW_YEAR_MS = 1_357_000_000_000


def memory_reader() -> TopicReader:
    """A topic of three partitions, made up on the spot; a local class, so that it travels to the executors by value."""

    class MemoryReader:
        def partition_counts(self, brokers: ClientConfig, topics: Sequence[str] | None) -> Mapping[str, int]:
            assert (brokers.bootstrap_servers, topics) == ("nowhere:9092", ("flights",))
            return {"flights": 3}

        def offsets_at(
            self, brokers: ClientConfig, timestamps: Mapping[TopicPartition, int]
        ) -> Mapping[TopicPartition, int]:
            bounds = {0: (5, 25), 1: (0, 0), 2: (0, 100)}
            return {tp: bounds[tp.partition][at == LATEST] for tp, at in timestamps.items()}

        def fetch_batches(
            self, brokers: ClientConfig, topic: str, partition: int, *, start_offset: int, end_offset: int
        ) -> Iterator[Chunk]:
            for first in range(start_offset, end_offset, 7):
                base_offset = max(0, first - 2)  # more than is meant, on both sides
                records = [
                    NewRecord(
                        b"%d-%d" % (partition, offset),
                        None if offset == 50 else b"\x00" * offset,
                        NEW_YEAR_MS + offset if offset % 2 else -1,
                        (("h", b"\x01"), ("n", None)) if offset == 51 else (),
                    )
                    for offset in range(base_offset, first + 7)
                ]
                batch = memoryview(build_batch(records, base_offset=base_offset))
                yield Chunk(batch, Offset(first), Offset(first + 7), 0)

    return MemoryReader()


def flights(
    spark: SparkSession, *, columns: Sequence[str] | None = None, min_partitions: int | None = None
) -> DataFrame:
    return read_topic(
        spark,
        "flights",
        bootstrap_servers="nowhere:9092",
        columns=columns,
        min_partitions=min_partitions,
        reader=memory_reader(),
    )


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession) -> None:
    assert flights(spark).dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


def test_every_record_is_read_once_with_all_columns(spark: SparkSession) -> None:
    rows = {(row.partition, row.offset): row for row in flights(spark).collect()}
    assert sorted(rows) == [(0, offset) for offset in range(5, 25)] + [(2, offset) for offset in range(100)]
    row = rows[2, 51]
    assert (bytes(row.key), len(row.value), row.topic, row.timestampType) == (b"2-51", 51, "flights", 0)
    assert row.timestamp == datetime.fromtimestamp((NEW_YEAR_MS + 51) / 1000)  # noqa: DTZ006  collect() answers in local time
    assert [(header.key, header.value) for header in row.headers] == [("h", bytearray(b"\x01")), ("n", None)]
    assert (rows[2, 50].value, rows[2, 50].timestamp, rows[2, 50].headers) == (None, None, None)


def test_there_is_one_task_per_planned_range(spark: SparkSession) -> None:
    frame = flights(spark, columns=["partition", "offset"], min_partitions=6)
    assert frame.rdd.getNumPartitions() == 6
    tasks = (
        frame.withColumn("task", spark_partition_id()).groupBy("task", "partition").count().orderBy("task").collect()
    )
    assert [tuple(task) for task in tasks] == [(0, 0, 20), *((task, 2, 20) for task in range(1, 6))]


def test_grouping_and_pandas_work(spark: SparkSession) -> None:
    counts = flights(spark).groupBy("topic", "partition").count().orderBy("partition").toPandas()
    assert counts.to_dict("list") == {"topic": ["flights", "flights"], "partition": [0, 2], "count": [20, 100]}
    whole = flights(spark, columns=["offset", "timestamp", "topic", "value"]).toPandas()
    assert whole["offset"].sum() == sum(range(5, 25)) + sum(range(100))
    assert whole["timestamp"].notna().sum() == 60


def test_an_empty_range_is_an_empty_frame(spark: SparkSession) -> None:
    frame = read_topic(
        spark,
        "flights",
        bootstrap_servers="nowhere:9092",
        starting_offsets={0: 25, 1: 0, 2: 100},
        reader=memory_reader(),
    )
    assert frame.count() == 0


def test_a_batch_cannot_start_at_latest(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="starting_offsets: a starting offset cannot be latest"):
        read_topic(
            spark, "flights", bootstrap_servers="nowhere:9092", starting_offsets="latest", reader=memory_reader()
        )


def test_python_workers_read_no_archives(spark: SparkSession) -> None:
    """They would read the lists of their files for each task."""

    def archives(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        paths = [each for each in (*sys.path, *sys.path_importer_cache) if ".zip" in each or ".jar" in each]
        yield pa.RecordBatch.from_pydict({"path": pa.array(paths, pa.string())})

    assert spark.range(0, 2, 1, 2).mapInArrow(archives, "path string").collect() == []
