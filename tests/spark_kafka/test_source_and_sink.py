"""Spark's own Kafka source and sink work on raylog as Spark documents them, with and without TLS and a login."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import raylog
from tests.spark_kafka.conftest import options
from tests.support.odd_topics import Row, by_stock_consumer
from tests.support.secure_cluster import SecureCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark_kafka
PROTOCOLS = ("PLAINTEXT", "SASL_SSL")
NUMBER = "CAST(CAST(value AS STRING) AS BIGINT) AS number"


@pytest.fixture(params=PROTOCOLS)
def given(request: pytest.FixtureRequest, secure: SecureCluster) -> Mapping[str, Any]:
    return options(secure, request.param)


@pytest.fixture
def admin(secure: SecureCluster) -> Iterator[raylog.AdminClient]:
    with raylog.AdminClient(bootstrap_servers=secure.login("PLAINTEXT").servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: raylog.AdminClient, request: pytest.FixtureRequest) -> str:
    return create(admin, request.node.name.replace("[", "-").rstrip("]"))


def create(admin: raylog.AdminClient, topic: str) -> str:
    admin.create_topics(raylog.NewTopic(topic, num_partitions=2, configs={"retention.ms": "-1"}))
    return topic


def write(secure: SecureCluster, topic: str, numbers: range, partitions: int = 2) -> None:
    with raylog.Producer(bootstrap_servers=secure.login("PLAINTEXT").servers) as producer:
        for number in numbers:
            producer.send(topic, value=b"%d" % number, partition=number % partitions, timestamp_ms=1000 * number)


def written(secure: SecureCluster, topic: str) -> list[Row]:
    return by_stock_consumer(secure.login("PLAINTEXT").servers, topic)


def test_a_batch_is_written_and_read_again(
    spark_kafka: SparkSession, secure: SecureCluster, given: Mapping[str, Any], topic: str
) -> None:
    rows = spark_kafka.range(1000).selectExpr(
        "CAST(id AS STRING) AS key",
        "IF(id % 7 = 0, NULL, CAST(id AS STRING)) AS value",
        "CAST(id % 2 AS INT) AS partition",
        "array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    rows.write.format("kafka").options(**given, topic=topic, includeHeaders="true").save()
    found = {(row.partition, row.key, row.value, row.headers) for row in written(secure, topic)}
    assert found == {
        (number % 2, b"%d" % number, b"%d" % number if number % 7 else None, (("h", b"%d" % number),))
        for number in range(1000)
    }

    starts = f'{{"{topic}":{{"0":100,"1":-2}}}}'
    ends = f'{{"{topic}":{{"0":300,"1":-1}}}}'
    source = spark_kafka.read.format("kafka").options(**given, subscribe=topic, includeHeaders="true", minPartitions=5)
    part = source.options(startingOffsets=starts, endingOffsets=ends).load()
    assert part.rdd.getNumPartitions() >= 5
    read = {(row.partition, row.offset) for row in part.select("partition", "offset").collect()}
    assert read == {(0, offset) for offset in range(100, 300)} | {(1, offset) for offset in range(500)}


def test_offsets_by_timestamp(
    spark_kafka: SparkSession, secure: SecureCluster, given: Mapping[str, Any], topic: str
) -> None:
    write(secure, topic, range(100))
    source = spark_kafka.read.format("kafka").options(**given, subscribePattern=f"{topic[:-1]}.")
    numbers = source.options(startingTimestamp=30_000, endingTimestamp=50_000).load().selectExpr(NUMBER)
    assert sorted(row.number for row in numbers.collect()) == list(range(30, 50))


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark_kafka: SparkSession,
    secure: SecureCluster,
    admin: raylog.AdminClient,
    given: Mapping[str, Any],
    topic: str,
    tmp_path: Path,
) -> None:
    """A run that fails in its sink, partitions that are added, and triggers that never end or end by themselves."""
    copy = create(admin, f"{topic}-copy")
    batches: dict[int, list[int]] = {}
    fails = False

    def keep(rows: DataFrame, batch: int) -> None:
        found = sorted(row.number for row in rows.selectExpr(NUMBER).collect())
        assert batches.setdefault(batch, found) == found, "a repeated batch is the same"
        if fails:
            raise RuntimeError("the sink fails")
        rows.selectExpr("key", "value").write.format("kafka").options(**given, topic=copy).save()

    def start(**trigger: Any) -> Any:
        source = spark_kafka.readStream.format("kafka").options(**given, subscribe=topic)
        rows = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=20).load()
        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(**trigger).start()

    write(secure, topic, range(50))
    start(availableNow=True).awaitTermination()
    assert [len(batch) for batch in batches.values()] == [20, 20, 10]
    write(secure, topic, range(50, 60))
    fails = True
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        start(availableNow=True).awaitTermination()
    fails = False
    admin.create_partitions({topic: 3})
    write(secure, topic, range(60, 90), partitions=3)
    query = start(processingTime="0 seconds")
    query.processAllAvailable()
    write(secure, topic, range(90, 100), partitions=3)
    query.processAllAvailable()
    query.stop()
    assert sorted(number for batch in batches.values() for number in batch) == list(range(100))
    assert sorted(int(row.value or b"") for row in written(secure, copy)) == list(range(100))


def test_a_stream_is_written(
    spark_kafka: SparkSession,
    secure: SecureCluster,
    admin: raylog.AdminClient,
    given: Mapping[str, Any],
    topic: str,
    tmp_path: Path,
) -> None:
    """By Spark's own writer, which chooses the topic of each row, and is started again with its checkpoint."""
    even, odd = create(admin, f"{topic}-even"), create(admin, f"{topic}-odd")
    for numbers in (range(30), range(30, 40)):
        write(secure, topic, numbers)
        rows = spark_kafka.readStream.format("kafka").options(**given, startingOffsets="earliest", subscribe=topic)
        routed = rows.load().selectExpr("value", f"IF(partition = 0, '{even}', '{odd}') AS topic")
        writer = routed.writeStream.format("kafka").options(**given, checkpointLocation=str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(int(row.value or b"") for row in written(secure, even)) == list(range(0, 40, 2))
    assert sorted(int(row.value or b"") for row in written(secure, odd)) == list(range(1, 40, 2))


def test_a_stream_tells_deleted_records(
    spark_kafka: SparkSession,
    secure: SecureCluster,
    admin: raylog.AdminClient,
    topic: str,
    tmp_path: Path,
) -> None:
    found: list[int] = []

    def run(**more: Any) -> None:
        source = spark_kafka.readStream.format("kafka").options(**options(secure, "PLAINTEXT"), subscribe=topic, **more)
        rows = source.option("startingOffsets", "earliest").load().selectExpr(NUMBER)
        writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(row.number for row in batch.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    write(secure, topic, range(10))
    run()
    write(secure, topic, range(10, 20))
    admin.delete_records({(topic, 0): 7})
    with pytest.raises(StreamingQueryException, match="Some data may have been lost"):
        run()
    found.clear()
    run(failOnDataLoss="false")
    assert sorted(found) == sorted([*range(11, 20, 2), 14, 16, 18])


def test_a_wrong_password_is_told(spark_kafka: SparkSession, secure: SecureCluster, topic: str) -> None:
    given = options(secure, "SASL_SSL", password="wrong")
    rows = spark_kafka.read.format("kafka").options(**given, subscribe=topic).load()
    with pytest.raises(Exception, match="SaslAuthenticationException"):
        rows.count()
