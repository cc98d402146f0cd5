"""(shell) Rows per second of a topic as a Spark DataFrame, by mapped files and over the wire."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.figures import Figure, figure, progress
from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.core.ids import TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.raydp_bridge.ranges import TopicReader
from raylog.raydp_bridge.session import spark_session
from raylog.raydp_bridge.source import read_topic

TOPIC = "bench-spark"
ROWS = 1_000_000
VALUE = b"x" * 100
PARTITIONS = 2


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


def measure(bootstrap_servers: str, runs: int) -> list[Figure]:
    _fill(bootstrap_servers)
    with spark_session("raylog-bench", executor_cores=2) as spark:
        return [
            _rows_per_second(spark, bootstrap_servers, range_reader, "mapped files", runs),
            _rows_per_second(spark, bootstrap_servers, WireReader(), "TCP", runs),
        ]


def _fill(bootstrap_servers: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "batch.size": 1_000_000})
    for number in range(ROWS):
        while True:
            try:
                producer.produce(TOPIC, VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _rows_per_second(spark: SparkSession, servers: str, reader: TopicReader, name: str, runs: int) -> Figure:
    rates = []
    for run in range(runs + 1):
        begun = time.perf_counter()
        rows = (
            read_topic(spark, TOPIC, bootstrap_servers=servers, columns=["value"], reader=reader)
            .selectExpr("count(*)", "sum(length(value))")
            .collect()[0]
        )
        assert tuple(rows) == (ROWS, ROWS * len(VALUE))
        if run:  # the first starts the executors' workers
            rates.append(ROWS / (time.perf_counter() - begun) / 1e6)
    progress(f"Spark by {name}: {max(rates):.2f} M rows/s")
    return figure(f"Spark reads 100 B values by {name}", "M rows/s", rates, more_is_better=True)
