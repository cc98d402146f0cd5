"""(shell) Topics in Spark: rows per second by each way in and out, latency of streams, start of a session.

With what script/kafka and script/spark-kafka bring, Spark's own Kafka source and sink are measured beside ours, on
raylog and on Apache Kafka, in turn, in one session on the same executor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.figures import Figure, figure, progress
from benchmarks.spark_paths import OwnPath, SparkPath, SparksPath, apache_kafka, create_topics, fill, kafka_classes
from benchmarks.spark_streams import latency, trigger_rate
from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.core.ids import TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.raydp_bridge.session import spark_session

TOPIC: Final = "bench-spark"
ROWS: Final = 3_000_000
ROWS_WRITTEN: Final = 200_000
VALUE: Final = b"x" * 100
READ_AIM: Final = 5.0


class WireReader:
    """The usual reader, with the files out of sight."""

    def partition_counts(self, brokers: ClientConfig, topics: Sequence[str] | None) -> dict[str, int]:
        return range_reader.partition_counts(brokers, topics)

    def offsets_at(self, brokers: ClientConfig, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return range_reader.offsets_at(brokers, timestamps)

    def fetch_batches(
        self, brokers: ClientConfig, topic: str, partition: int, *, start_offset: int, end_offset: int
    ) -> Iterator[Chunk]:
        return range_reader.fetch_batches(
            brokers, topic, partition, start_offset=start_offset, end_offset=end_offset, mapped=False
        )


def measure(bootstrap_servers: str, runs: int, folder: Path) -> list[Figure]:
    with apache_kafka(folder / "kafka") as kafka:
        for servers in filter(None, (bootstrap_servers, kafka)):
            create_topics(servers, [TOPIC])
            fill(servers, TOPIC, ROWS, VALUE)
        begun = time.perf_counter()
        classes = kafka_classes()
        with spark_session("raylog-bench", executor_cores=2, configs=classes) as spark:
            session, begun = time.perf_counter() - begun, time.perf_counter()
            own, over_tcp = OwnPath(bootstrap_servers), OwnPath(bootstrap_servers, reader=WireReader(), reads="TCP")
            _count(spark, own)
            figures = [
                figure("start of a Spark session on a running Ray", "s", [session]),
                figure("  its first query", "s", [time.perf_counter() - begun]),
            ]
            progress(f"Spark session {figures[0].median:.1f} s, first query {figures[1].median:.1f} s")
            once = OwnPath(bootstrap_servers, exactly_once=True)
            others: list[SparkPath] = [SparksPath(bootstrap_servers, "raylog")] if classes else []
            others += [SparksPath(kafka, "Kafka")] if classes and kafka else []
            figures += _reads(spark, [own, over_tcp, *others], runs)
            figures += _writes(spark, [own, once, *others], runs)
            for number, path in enumerate([own, *others]):
                home = folder / f"rate-{number}"
                figures.append(trigger_rate(spark, path, TOPIC, ROWS, home))
            for number, path in enumerate([own, once, *others]):
                figures += latency(spark, path, folder / f"spark-{number}")
            return figures


def _count(spark: SparkSession, path: SparkPath) -> None:
    rows = path.read(spark, TOPIC).selectExpr("count(*)", "sum(length(value))").collect()[0]
    assert tuple(rows) == (ROWS, ROWS * len(VALUE))


def _reads(spark: SparkSession, paths: Sequence[SparkPath], runs: int) -> list[Figure]:
    rates: dict[str, list[float]] = {path.reads: [] for path in paths}
    for run in range(runs + 1):
        for path in paths:
            begun = time.perf_counter()
            _count(spark, path)
            if run:  # the first compiles
                rates[path.reads].append(ROWS / (time.perf_counter() - begun) / 1e6)
    for name, found in rates.items():
        progress(f"Spark by {name}: {max(found):.2f} M rows/s")
    figures = [
        figure(f"Spark reads by {name}", "M rows/s", found, more_is_better=True) for name, found in rates.items()
    ]
    ours, theirs = rates[paths[0].reads], rates[paths[-1].reads]
    if isinstance(paths[-1], SparksPath):
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        name = f"  the first / {paths[-1].reads}"
        figures.append(figure(name, "times", ratios, solid=1.0, aim=READ_AIM, more_is_better=True))
    return figures


def _writes(spark: SparkSession, paths: Sequence[SparkPath], runs: int) -> list[Figure]:
    rates: dict[str, list[float]] = {path.name: [] for path in paths}
    rows = spark.range(0, ROWS_WRITTEN, 1, 2).selectExpr(f"rpad(CAST(id AS STRING), {len(VALUE)}, 'x') AS value")
    topics = {path.name: f"written-{number}" for number, path in enumerate(paths)}
    for path in paths:
        create_topics(path.servers, [topics[path.name]])
    for run in range(runs + 1):
        for path in paths:
            begun = time.perf_counter()
            path.write(rows, topics[path.name])
            if run:
                rates[path.name].append(ROWS_WRITTEN / (time.perf_counter() - begun) / 1e6)
    for name, found in rates.items():
        progress(f"Spark writes by {name}: {max(found):.2f} M rows/s")
    return [_rate(f"Spark writes: {name}", found) for name, found in rates.items()]


def _rate(name: str, found: list[float]) -> Figure:
    return figure(name, "M rows/s", found, more_is_better=True)
