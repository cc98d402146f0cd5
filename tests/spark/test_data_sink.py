"""The format "raylog" of Spark 4 writes DataFrames and streams to topics, and refuses what it cannot write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import raylog
from raylog.raydp_bridge import register
from raylog.raydp_bridge.source import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.ray, pytest.mark.spark, pytest.mark.spark4]


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[raylog.Cluster]:
    register(spark)
    with (
        raylog.start("spark4sink") as cluster,
        raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([raylog.NewTopic(name, num_partitions=3) for name in ("rows", "others", "copied")])
        yield cluster


def options(cluster: raylog.Cluster, **more: Any) -> dict[str, Any]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, **more}


def records(spark: SparkSession, cluster: raylog.Cluster, topic: str) -> list[tuple[Any, ...]]:
    frame = read_topic(spark, topic, bootstrap_servers=cluster.bootstrap_servers)
    rows = frame.selectExpr("string(key)", "string(value)", "partition", "headers").collect()
    return sorted(
        (row[0], row[1], row[2], [(each["key"], bytes(each["value"])) for each in row[3] or ()]) for row in rows
    )


def test_rows_go_to_the_topic_and_partition_of_their_columns(spark: SparkSession, cluster: raylog.Cluster) -> None:
    frame = spark.range(40).selectExpr(
        "id AS ignored",
        "int(id % 3) AS partition",
        "string(id) AS value",
        "binary(string(id % 5)) AS key",
        "IF(id < 30, 'rows', 'others') AS topic",
        "array(named_struct('key', 'h', 'value', binary(string(id)))) AS headers",
    )
    frame.write.format("raylog").options(**options(cluster, **{"kafka.compression.type": "lz4"})).mode("append").save()
    for topic, numbers in {"rows": range(30), "others": range(30, 40)}.items():
        expected = [(str(n % 5), str(n), n % 3, [("h", str(n).encode())]) for n in numbers]
        assert records(spark, cluster, topic) == sorted(expected)


def test_a_stream_is_copied_from_topic_to_topic(spark: SparkSession, cluster: raylog.Cluster, tmp_path: Path) -> None:
    with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(raylog.NewTopic("copies", num_partitions=3))
    with raylog.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(100):
            producer.send("copies", key=str(number % 7), value=str(number), partition=number % 3)
    source = options(cluster, subscribe="copies", startingOffsets="earliest", maxOffsetsPerTrigger=60)
    stream = spark.readStream.format("raylog").options(**source).load().select("key", "value", "partition")
    query = (
        stream.writeStream.format("raylog")
        .options(**options(cluster, topic="copied", checkpointLocation=str(tmp_path)))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert records(spark, cluster, "copied") == records(spark, cluster, "copies")
    assert len(records(spark, cluster, "copied")) == 100


def test_what_cannot_be_written_is_refused_before_a_task_starts(spark: SparkSession, cluster: raylog.Cluster) -> None:
    rows = spark.range(3).selectExpr("string(id) AS value")

    def refusal(frame: DataFrame, given: dict[str, Any], mode: str = "append") -> str:
        with pytest.raises(Exception, match="Python data source") as refused:
            frame.write.format("raylog").options(**given).mode(mode).save()
        return str(refused.value)

    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    assert "topic option required when no 'topic' attribute is present" in refusal(rows, options(cluster))
    with_topic = options(cluster, topic="rows")
    assert "Required attribute 'value' not found" in refusal(rows.selectExpr("value AS key"), with_topic)
    assert "value attribute unsupported type bigint" in refusal(rows.selectExpr("bigint(value) AS value"), with_topic)
    assert 'the save mode "overwrite" is not allowed' in refusal(rows, with_topic, "overwrite")
    assert "kafka.bootstrap.servers: must be specified" in refusal(rows, {"topic": "rows"})
    assert "'topics': is not an option of this sink" in refusal(rows, {**with_topic, "topics": "rows"})
    assert "compresion.type" in refusal(rows, {**with_topic, "kafka.compresion.type": "lz4"})
    assert "transactional.id: is chosen by the sink" in refusal(rows, {**with_topic, "kafka.transactional.id": "mine"})
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before
