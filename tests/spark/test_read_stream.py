"""A streaming query over topics goes on after failures as with Spark's Kafka source: nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import ray
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

import raylog
from raylog.core.errors import ConfigError, KafkaError
from raylog.raydp_bridge.plan_store import PlanStore
from raylog.raydp_bridge.stream import _planner, read_stream, run_available_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.ray, pytest.mark.spark]

EPOCH_MS = 1_357_000_200_000
NUMBER = "CAST(CAST(value AS STRING) AS BIGINT) AS number"
Rows = list[tuple[Any, ...]]
Batches = dict[int, Rows]
"""By the number that Spark has given: with a watermark there are some without rows, which read nothing."""


class Topic:
    """A topic whose records have numbers as values, and a timestamp one second later each."""

    def __init__(self, cluster: raylog.Cluster, name: str, partitions: int) -> None:
        self.name = name
        self.servers = cluster.bootstrap_servers
        self.count = 0
        with self.admin() as admin:
            admin.create_topics(raylog.NewTopic(name, num_partitions=partitions, configs={"retention.ms": "-1"}))

    def admin(self) -> raylog.AdminClient:
        return raylog.AdminClient(bootstrap_servers=self.servers)

    def write(self, count: int, partitions: int = 2) -> None:
        with raylog.Producer(bootstrap_servers=self.servers) as producer:
            for number in range(self.count, self.count + count):
                producer.send(
                    self.name,
                    value=b"%d" % number,
                    partition=number % partitions,
                    timestamp_ms=EPOCH_MS + 1000 * number,
                )
        self.count += count

    def options(self, **more: Any) -> dict[str, Any]:
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": self.name, "startingOffsets": "earliest"}
        return {**given, "columns": "value,timestamp", **more}


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[raylog.Cluster]:
    partitions = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with raylog.start("streams", brokers=1) as cluster:
        yield cluster
    spark.conf.set("spark.sql.shuffle.partitions", partitions)


def run_once(frame: DataFrame, home: Path, batches: Batches, *, fails: Callable[[Rows], bool] = lambda _: False) -> Any:
    """One batch, after one that has to be repeated."""

    def keep(rows: DataFrame, batch: int) -> None:
        found = [tuple(row) for row in rows.collect()]
        if batch in batches:
            assert sorted(batches[batch]) == sorted(found), "a repeated batch is the same"
        batches[batch] = found
        if fails(found):
            raise RuntimeError("the sink fails")

    writer = frame.writeStream.outputMode("update").foreachBatch(keep).option("checkpointLocation", str(home / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_stateful_query_goes_on_after_a_failure_as_if_there_had_been_none(
    spark: SparkSession, cluster: raylog.Cluster, tmp_path: Path
) -> None:
    topic = Topic(cluster, "counted", 2)

    def windows() -> DataFrame:
        rows = read_stream(spark, topic.options(), plan_location=tmp_path / "p").selectExpr("timestamp", NUMBER)
        counted = rows.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "100 seconds"))
        totals = counted.agg(F.count("*").alias("count"), F.sum("number").alias("total"))
        return totals.selectExpr("unix_millis(window.start)", "count", "total")

    batches: Batches = {}
    topic.write(150)
    run_once(windows(), tmp_path, batches)
    topic.write(50)
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run_once(windows(), tmp_path, batches, fails=bool)
    with topic.admin() as admin:
        admin.create_partitions({topic.name: 3})
    topic.write(130, partitions=3)
    query = run_once(windows(), tmp_path, batches)

    latest: dict[int, tuple[int, int]] = {}
    for batch in sorted(batches):
        latest |= {start: (count, total) for start, count, total in batches[batch]}
    expected = {}
    for first in range(0, topic.count, 100):
        numbers = range(first, min(first + 100, topic.count))
        expected[EPOCH_MS + 1000 * first] = (len(numbers), sum(numbers))
    assert latest == expected
    progress = query.lastProgress
    assert [state["numRowsDroppedByWatermark"] for state in progress["stateOperators"]] == [0]

    planned = PlanStore(tmp_path / "p").batches()
    assert [sum(plan.ends.values()) for plan in planned.values()] == [150, 200, 330]
    with topic.admin() as admin:  # the listener of the query runs after it
        group = f"spark-{query.id}"
        while {tp: each.offset for tp, each in admin.list_consumer_group_offsets(group).items() if each} != dict(
            planned[2].ends
        ):
            pass


def test_retention_and_a_deleted_topic_are_losses(spark: SparkSession, cluster: raylog.Cluster, tmp_path: Path) -> None:
    topic, other = Topic(cluster, "lost", 2), Topic(cluster, "lost-too", 1)

    def rows(**more: Any) -> DataFrame:
        options = topic.options(subscribe="lost,lost-too", columns="value", **more)
        return read_stream(spark, options, plan_location=tmp_path / "p").selectExpr(NUMBER)

    batches: Batches = {}
    topic.write(10)
    other.write(10, partitions=1)
    run_once(rows(), tmp_path, batches)
    topic.write(10)
    with topic.admin() as admin:
        admin.delete_records({(topic.name, 0): 7})
        admin.delete_topics(other.name)
    loss = "lost-too-0 is gone; lost-0: offset 5 no longer exists, the earliest is 7"
    with pytest.raises(StreamingQueryException, match=rf"{loss}.*failOnDataLoss to 'false'"):
        run_once(rows(), tmp_path, batches)
    run_once(rows(failOnDataLoss="false"), tmp_path, batches)
    assert sorted(row[0] for row in batches[0]) == sorted([*range(10), *range(10)])
    assert sorted(row[0] for row in batches[1]) == sorted([*range(11, 20, 2), 14, 16, 18])


def test_available_now_reads_what_there_is_in_batches_of_the_limit(
    spark: SparkSession, cluster: raylog.Cluster, tmp_path: Path
) -> None:
    topic = Topic(cluster, "limited", 2)
    topic.write(25)
    options = topic.options(maxOffsetsPerTrigger="10", columns="value")
    frame = read_stream(spark, options, plan_location=tmp_path / "p")
    found: list[list[int]] = []

    def keep(rows: DataFrame, batch: int) -> None:
        found.append(sorted(int(row.value) for row in rows.collect()))
        topic.write(5)  # belongs to the next run
        ray.kill(_planner().actor, no_restart=False)

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c"))
    run_available_now(writer, plan_location=tmp_path / "p")
    assert len(found) == 3
    assert max(len(batch) for batch in found) <= 10
    assert sorted(number for batch in found for number in batch) == list(range(25))


def test_what_cannot_work_is_refused_before_a_query_starts(
    spark: SparkSession, cluster: raylog.Cluster, tmp_path: Path
) -> None:
    topic = Topic(cluster, "refused", 1)
    for options, rule in (
        ({"endingOffsets": "latest"}, "endingOffsets: an ending offset or timestamp is not valid in streaming queries"),
        ({"kafka.group.id": "g"}, "'group.id' is not supported"),
        ({"startingOffsets": '{"refused":{"1":0}}'}, "startingOffsets: must contain all partitions; refused-0"),
        ({"startingTimestamp": "5"}, "startingTimestamp: refused-0 has no record at or after the timestamp 5"),
    ):
        with pytest.raises(ConfigError, match=rule):
            read_stream(spark, topic.options(**options), plan_location=tmp_path / "p")
    with pytest.raises(KafkaError, match="none: does not exist"):
        read_stream(spark, topic.options(subscribe="none"), plan_location=tmp_path / "p")
    read_stream(spark, topic.options(), plan_location=tmp_path / "p")
    with pytest.raises(ConfigError, match="belongs to a stream with subscribe=refused"):
        read_stream(spark, topic.options(subscribe="counted"), plan_location=tmp_path / "p")
