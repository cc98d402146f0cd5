"""(shell) Streams of Spark: how late a record is in another topic, and how many rows a second triggers get through."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure, figure, percentile, progress
from benchmarks.spark_paths import PARTITIONS, SparkPath, create_topics

PER_SECOND: Final = 5_000
VALUE_BYTES: Final = 100
COUNTED_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 10.0
"""What is sent so long after the first row has arrived is not counted."""
WAIT_SECONDS: Final = 120.0
ROWS_PER_TRIGGER: Final = 200_000


def latency(spark: SparkSession, path: SparkPath, home: Path) -> list[Figure]:
    """From the call of a producer, through Spark into another topic, to a consumer with read_committed."""
    source, target = f"latency-{home.name}", f"latency-{home.name}-copy"
    create_topics(path.servers, [source, target])
    ends = threading.Event()
    query = path.copy(spark, source, target, home)
    writer = threading.Thread(target=_write_evenly, args=(path.servers, source, ends), daemon=True)
    writer.start()
    try:
        latencies = sorted(_arrivals(path.servers, target))
    finally:
        ends.set()
        writer.join()
        query.stop()
    p50, p99 = percentile(latencies, 50), percentile(latencies, 99)
    progress(f"stream by {path.name}, {PER_SECOND:,} rows/s: p50 {p50:.0f} ms, p99 {p99:.0f} ms of {len(latencies)}")
    return [
        figure(f"topic to topic, {PER_SECOND:,}/s, {path.name}: p50", "ms", [p50]),
        figure("  p99", "ms", [p99]),
    ]


def _write_evenly(servers: str, topic: str, ends: threading.Event) -> None:
    """Values begin with the time at which they were sent."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    due = time.perf_counter()
    number = 0
    while not ends.is_set():
        for _ in range(PER_SECOND // 100):
            value = (b"%d " % time.perf_counter_ns()).ljust(VALUE_BYTES, b"x")
            producer.produce(topic, value, partition=number % PARTITIONS)
            number += 1
        due += 0.01
        producer.poll(0)
        ends.wait(max(due - time.perf_counter(), 0))
    producer.flush(WAIT_SECONDS)


def _arrivals(servers: str, topic: str) -> list[float]:
    """Milliseconds of each row that was sent in the counted time."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe([topic])
    found: list[float] = []
    passed: set[int | None] = set()
    begins = ends = None
    deadline = time.perf_counter() + WAIT_SECONDS
    while ends is None or time.perf_counter() < ends + WAIT_SECONDS:
        messages = consumer.consume(5_000, 0.02)
        now = time.perf_counter_ns()
        assert messages or ends or time.perf_counter() < deadline, f"nothing arrives in {topic}"
        for message in messages:
            assert message.error() is None, message.error()
            sent = int((message.value() or b"").partition(b" ")[0])
            if begins is None or ends is None:
                begins = now / 1e9 + SETTLE_SECONDS
                ends = begins + COUNTED_SECONDS
            if sent / 1e9 > ends:
                passed.add(message.partition())
            elif sent / 1e9 > begins:
                found.append((now - sent) / 1e6)
        if len(passed) == PARTITIONS:
            consumer.close()
            return found
    raise TimeoutError(f"{topic}: rows arrive more than {WAIT_SECONDS:.0f} s late")


def trigger_rate(spark: SparkSession, path: SparkPath, topic: str, rows: int, home: Path) -> Figure:
    """Rows per second of a query that has to catch up, from the end of its first batch to that of its last."""
    done: list[tuple[float, int]] = []
    finished = threading.Event()

    def count(batch: DataFrame, _: int) -> None:
        found = batch.selectExpr("count(*)", "sum(length(value))").collect()[0][0]
        done.append((time.perf_counter(), found))
        if sum(each for _, each in done) >= rows:
            finished.set()

    writer = path.stream(spark, topic, home, ROWS_PER_TRIGGER).writeStream.foreachBatch(count)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    while not finished.wait(0.1):
        assert query.isActive, query.exception()
    query.stop()
    batches = [each for each in done if each[1]]
    rate = sum(found for _, found in batches[1:]) / (batches[-1][0] - batches[0][0]) / 1e6
    name = f"stream, {ROWS_PER_TRIGGER:,} rows a trigger, {path.name}"
    progress(f"{name}: {rate:.2f} M rows/s")
    return figure(name, "M rows/s", [rate], more_is_better=True)
