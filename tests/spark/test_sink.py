"""DataFrames become records: at least once in a batch, exactly once in a stream that fails and is started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, KafkaError
from raylog.raydp_bridge.sink import ExactlyOnceSink, WrittenBatch, write_stream, write_topic
from tests.client.served import Served, serve

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served")) as served:
        yield served


def test_a_data_frame_is_written_with_all_columns(spark: SparkSession, served: Served) -> None:
    topics = [served.new_topic(partitions=2), served.new_topic()]
    rows = spark.range(0, 1000, 1, 3).select(
        expr("CAST(id AS STRING)").alias("value"),
        expr(f"IF(id % 10 = 0, '{topics[1]}', '{topics[0]}')").alias("topic"),
        expr("IF(id % 10 = 0, NULL, CAST(id % 2 AS INT))").alias("partition"),
        expr("CAST(CAST(id AS STRING) AS BINARY)").alias("key"),
        expr("array(named_struct('key', 'h', 'value', CAST('x' AS BINARY)))").alias("headers"),
        col("id").alias("not_written"),
    )
    written = write_topic(rows, bootstrap_servers=served.plain)
    assert written == (1000, {topics[0]: 900, topics[1]: 100})
    for partition in range(2):
        numbers = [number for number in range(1000) if number % 10 and number % 2 == partition]
        found = served.read(topics[0], len(numbers), partition)
        assert sorted(int(message.value()) for message in found) == numbers
        assert all(message.key() == message.value() and message.headers() == [("h", b"x")] for message in found)
    assert sorted(int(message.value()) for message in served.read(topics[1], 100)) == list(range(0, 1000, 10))


def test_wrong_columns_are_refused_before_a_task_starts(spark: SparkSession, served: Served) -> None:
    with pytest.raises(ConfigError, match="topic option required when no 'topic' attribute is present"):
        write_topic(spark.range(1).select(expr("'x' AS value")), bootstrap_servers=served.plain)
    with pytest.raises(ConfigError, match="value attribute unsupported type bigint"):
        write_topic(spark.range(1).withColumnRenamed("id", "value"), "t", bootstrap_servers=served.plain)


def test_a_topic_that_does_not_exist_is_refused_before_a_task_starts(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    config = {"max.block.ms": 200}
    with pytest.raises(KafkaError, match="no metadata of topic 'nowhere'"):
        write_topic(
            spark.range(0).select(expr("'x' AS value")),
            "nowhere",
            bootstrap_servers=served.plain,
            producer_config=config,
        )
    rows = spark.readStream.format("rate").load().select(expr("'x' AS value"))
    with pytest.raises(KafkaError, match="no metadata of topic 'nowhere'"):
        write_stream(
            rows,
            "nowhere",
            checkpoint_location=str(tmp_path),
            bootstrap_servers=served.plain,
            producer_config=config,
        )
    assert not spark.streams.active


def test_each_row_of_a_stream_is_there_once_after_failures_and_restarts(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    """The first attempt fails in one of its tasks, the second after all tasks; a later query has one more batch."""
    topic = served.new_topic(max_message_bytes="1000")
    sink = ExactlyOnceSink(topic, tasks=2, bootstrap_servers=served.plain)
    lines = tmp_path / "lines"
    lines.mkdir()
    expected = ["x" * 2000, *map(str, range(50))]
    (lines / "first.txt").write_text("\n".join(expected))
    rows = spark.readStream.format("text").load(str(lines))
    written: list[WrittenBatch] = []

    def write_and_fail(batch: DataFrame, batch_id: int) -> None:
        written.append(sink.write(batch, batch_id))
        raise RuntimeError("the driver dies")

    def run_until_it_fails() -> str:
        writer = rows.writeStream.foreachBatch(write_and_fail).option("checkpointLocation", str(tmp_path / "state"))
        query = writer.trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException) as raised:
            query.awaitTermination()
        return str(raised.value)

    assert "MESSAGE_TOO_LARGE" in run_until_it_fails()
    with AdminClient(bootstrap_servers=served.plain) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        admin.incremental_alter_configs({resource: {"max.message.bytes": "10000"}})
    assert "the driver dies" in run_until_it_fails()
    assert written == [(51, 2, 1)], "one task had written its rows before the first failure"
    (lines / "second.txt").write_text("last\n")
    query = write_stream(
        rows,
        topic,
        checkpoint_location=str(tmp_path / "state"),
        bootstrap_servers=served.plain,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    with Producer(bootstrap_servers=served.plain) as producer:
        producer.send(topic, b"end").result()
    found: list[str] = []
    while "end" not in found:
        found = [message.value().decode() for message in served.read(topic, len(found) + 1)]
    assert sorted(found) == sorted([*expected, "last", "end"])


def test_a_batch_without_rows_is_recorded_by_every_task(spark: SparkSession, served: Served) -> None:
    sink = ExactlyOnceSink(served.new_topic(), tasks=3, bootstrap_servers=served.plain)
    for rows in (spark.createDataFrame([], "value string"), spark.range(0).select(expr("'x' AS value"))):
        assert sink.write(rows, 0, query_id="empty") in [(0, 3, 0), (0, 3, 3)]
    assert sink.write(spark.range(3).select(expr("'x' AS value")), 1, query_id="empty") == (3, 3, 0)
    with pytest.raises(ConfigError, match="query_id: must be given"):
        sink.write(rows, 2)


def test_speculation_is_refused(spark: SparkSession, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ExactlyOnceSink(served.new_topic(), bootstrap_servers=served.plain)
    conf = spark.sparkContext.getConf().set("spark.speculation", "true")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda _: conf)
    with pytest.raises(ConfigError, match=r"spark\.speculation=true: must be false"):
        sink.write(spark.range(1).select(expr("'x' AS value")), 0, query_id="q")
