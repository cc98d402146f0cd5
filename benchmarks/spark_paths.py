"""(shell) The ways of topics into Spark and out of it: raylog's own, and Spark's Kafka source and sink."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.figures import progress
from raylog.client import range_reader
from raylog.raydp_bridge.java import spark_major
from raylog.raydp_bridge.ranges import TopicReader
from raylog.raydp_bridge.sink import ExactlyOnceSink, write_stream, write_topic
from raylog.raydp_bridge.source import read_topic
from raylog.raydp_bridge.stream import read_stream
from tests.support.kafka_peer import ROOT, kafka_peer

PARTITIONS: Final = 2
KAFKA_HEAP: Final = ("-Xmx1g", "-Xms1g")
ADMIN_SECONDS: Final = 30.0


class SparkPath(Protocol):
    """One source and one sink of Spark, on the brokers of one log."""

    name: str
    reads: str
    """What it reads with."""
    servers: str

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """The values of the whole topic."""

    def stream(self, spark: SparkSession, topic: str, home: Path, limit: int | None = None) -> DataFrame:
        """The values of the topic from its beginning, at most so many in a batch."""

    def write(self, df: DataFrame, topic: str) -> None:
        """Write the rows of a batch."""

    def copy(self, spark: SparkSession, source: str, target: str, home: Path) -> StreamingQuery:
        """Start a query that writes what is added to one topic to the other one."""


class OwnPath:
    """`read_topic`, `read_stream` and the sinks of raydp_bridge."""

    def __init__(
        self,
        servers: str,
        *,
        exactly_once: bool = False,
        reader: TopicReader = range_reader,
        reads: str = "mapped files",
    ) -> None:
        self.name = f"raylog, {'exactly' if exactly_once else 'at least'} once"
        self.reads = f"read_topic, {reads}"
        self.servers = servers
        self._exactly_once = exactly_once
        self._reader = reader
        self._batches = 0

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        return read_topic(spark, topic, bootstrap_servers=self.servers, columns=["value"], reader=self._reader)

    def stream(self, spark: SparkSession, topic: str, home: Path, limit: int | None = None) -> DataFrame:
        options = _options(self.servers, topic, limit) | {"columns": "value"}
        return read_stream(spark, options, plan_location=home / "plans", reader=self._reader)

    def write(self, df: DataFrame, topic: str) -> None:
        if self._exactly_once:
            sink = ExactlyOnceSink(topic, tasks=PARTITIONS, bootstrap_servers=self.servers)
            sink.write(df, self._batches, query_id=f"bench-{topic}")
            self._batches += 1
        else:
            write_topic(df, topic, bootstrap_servers=self.servers)

    def copy(self, spark: SparkSession, source: str, target: str, home: Path) -> StreamingQuery:
        rows, checkpoint = self.stream(spark, source, home), str(home / "checkpoint")
        if self._exactly_once:
            return write_stream(
                rows, target, checkpoint_location=checkpoint, tasks=PARTITIONS, bootstrap_servers=self.servers
            )
        writer = rows.writeStream.foreachBatch(lambda batch, _: self.write(batch, target))
        return writer.option("checkpointLocation", checkpoint).start()


class SparksPath:
    """`format("kafka")`."""

    def __init__(self, servers: str, log: str) -> None:
        self.name = f"Spark's own on {log}"
        self.reads = f"Spark's source on {log}"
        self.servers = servers

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        return spark.read.format("kafka").options(**_options(self.servers, topic)).load().select("value")

    def stream(self, spark: SparkSession, topic: str, home: Path, limit: int | None = None) -> DataFrame:
        source = spark.readStream.format("kafka").options(**_options(self.servers, topic, limit))
        return source.load().select("value")

    def write(self, df: DataFrame, topic: str) -> None:
        df.write.format("kafka").options(**_options(self.servers), topic=topic).save()

    def copy(self, spark: SparkSession, source: str, target: str, home: Path) -> StreamingQuery:
        writer = self.stream(spark, source, home).writeStream.format("kafka").options(**_options(self.servers))
        return writer.option("topic", target).option("checkpointLocation", str(home / "checkpoint")).start()


def _options(servers: str, topic: str | None = None, limit: int | None = None) -> dict[str, Any]:
    given: dict[str, Any] = {"kafka.bootstrap.servers": servers}
    if topic is not None:
        given |= {"subscribe": topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    return given if limit is None else given | {"maxOffsetsPerTrigger": limit}


def kafka_classes() -> Mapping[str, str]:
    """The settings with which a session on Ray has Spark's Kafka source; none without it."""
    if not _is_brought("spark-kafka", ".kafka/spark-*/classpath") or spark_major() != 3:
        return {}
    found = subprocess.run([ROOT / "script" / "spark-kafka"], stdout=subprocess.PIPE, text=True, check=True)
    path = found.stdout.strip()
    return {"spark.driver.extraClassPath": path, "raydp.executor.extraClassPath": path}


@contextmanager
def apache_kafka(folder: Path) -> Iterator[str | None]:
    """The address of an Apache Kafka; None without it."""
    if not _is_brought("kafka", ".kafka/[0-9]*/classpath"):
        yield None
        return
    with kafka_peer(folder, java_options=KAFKA_HEAP) as peer:
        peer.start()
        yield peer.bootstrap_servers


def _is_brought(script: str, jars: str) -> bool:
    if any(ROOT.glob(jars)) and shutil.which("java"):
        return True
    progress(f"Spark: not compared with what script/{script} brings")
    return False


def create_topics(servers: str, topics: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        created.result(ADMIN_SECONDS)


def fill(servers: str, topic: str, rows: int, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 1_000_000})
    for number in range(rows):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(ADMIN_SECONDS) == 0
