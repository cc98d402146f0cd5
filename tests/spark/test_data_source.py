"""The format "raylog" of Spark 4: batch and streaming queries with the semantics of Spark's own Kafka source."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import raylog
from raylog.raydp_bridge import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.ray, pytest.mark.spark, pytest.mark.spark4]

Store = Callable[["DataFrame", int], None]
HANG_SECONDS = 60


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[raylog.Cluster]:
    register(spark)
    register(spark)  # changes nothing
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    with raylog.start("spark4") as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: raylog.Cluster) -> Iterator[raylog.AdminClient]:
    with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


class Topic:
    """A topic whose records have their numbers as values, in turns over the partitions."""

    def __init__(self, cluster: raylog.Cluster, admin: raylog.AdminClient, name: str, *, partitions: int = 2) -> None:
        self.servers, self.name, self.partitions, self.sent = cluster.bootstrap_servers, name, partitions, 0
        admin.create_topics(raylog.NewTopic(name, num_partitions=partitions))

    def send(self, count: int, *, partition: int | None = None) -> None:
        with raylog.Producer(bootstrap_servers=self.servers) as producer:
            for number in range(self.sent, self.sent + count):
                chosen = number % self.partitions if partition is None else partition
                producer.send(self.name, key=b"%d" % (number % 5), value=b"%d" % number, partition=chosen)
        self.sent += count


class Query:
    """One streaming query: what it has stored, over several runs with one checkpoint."""

    def __init__(self, spark: SparkSession, servers: str, checkpoint: Path, options: Mapping[str, Any]) -> None:
        self.spark, self.checkpoint = spark, checkpoint
        self.options = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **options}
        self.values: dict[int, list[int]] = {}
        """By batch; that of a repeated batch replaces the first."""

    def source(self, **options: Any) -> DataFrame:
        return self.spark.readStream.format("raylog").options(**{**self.options, **options}).load()

    def run(
        self, frame: DataFrame | None = None, store: Store | None = None, mode: str = "append", **options: Any
    ) -> str:
        """Until all that is available now has been read. Returns the id of the query."""
        writer = (self.source(**options) if frame is None else frame).writeStream.outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.foreachBatch(store or self._store).start()
        query.awaitTermination()
        return str(query.id)

    def _store(self, frame: DataFrame, batch: int) -> None:
        self.values[batch] = sorted(int(row["value"]) for row in frame.select("value").collect())

    @property
    def all_values(self) -> list[int]:
        return sorted(value for values in self.values.values() for value in values)

    def offsets(self, batch: int) -> Any:
        return json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


def read(spark: SparkSession, cluster: raylog.Cluster, **options: Any) -> DataFrame:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
    return spark.read.format("raylog").options(**given).load()


def jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_a_batch_query_has_the_chosen_columns_and_the_planned_tasks(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient
) -> None:
    topic = Topic(cluster, admin, "batch")
    topic.send(100)
    assert read(spark, cluster, subscribe="batch").columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    starts = json.dumps({"batch": {"0": 10, "1": -2}})
    frame = read(
        spark, cluster, subscribePattern="bat.*", columns="value,partition", startingOffsets=starts, minPartitions=5
    )
    assert frame.columns == ["value", "partition"]
    assert frame.rdd.getNumPartitions() == 5
    rows = {(int(row["value"]), row["partition"]) for row in frame.collect()}
    assert rows == {(number, number % 2) for number in range(100) if number % 2 or number >= 20}
    assert (
        read(spark, cluster, subscribe="batch", startingOffsets=json.dumps({"batch": {"0": 50, "1": 50}})).count() == 0
    )


WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "no brokers": ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: must be specified"),
    "no topic": ({"subscribe": None}, "one of the options subscribe, subscribePattern, assign must be specified"),
    "two strategies": ({"subscribePattern": "w.*"}, "only one of the options subscribe, subscribePattern, assign"),
    "unknown": ({"startingOffset": "earliest"}, "'startingoffset': is not an option of this source"),
    "a group": ({"kafka.group.id": "mine"}, "Kafka option 'group.id' is not supported"),
    "latest": ({"startingOffsets": "latest"}, "a starting offset cannot be latest in batch queries"),
    "no JSON": ({"startingOffsets": "soon"}, "must be JSON such as"),
    "no such topic": ({"subscribe": "missing"}, "missing: does not exist"),
    "no such partition": ({"startingOffsets": '{"wrong":{"0":0,"7":0}}'}, "wrong-7, which do not exist"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_options_are_refused_before_a_task_starts(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient, wrong: str
) -> None:
    if "wrong" not in {listed.name for listed in admin.list_topics()}:
        Topic(cluster, admin, "wrong", partitions=1)
    changed, words = WRONG[wrong]
    options: dict[str, str | None] = {"subscribe": "wrong", **changed}
    options = {name: value for name, value in options.items() if value is not None}
    before = jobs(spark)
    with pytest.raises(Exception, match="Python data source") as refusal:
        read(spark, cluster, **options).count()
    assert words in str(refusal.value)
    assert jobs(spark) == before


def test_a_schema_of_ones_own_and_the_options_of_the_other_kind_of_query_are_refused(
    spark: SparkSession, cluster: raylog.Cluster, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "wrong"}
    with pytest.raises(Exception, match="fixed schema and cannot be set with a custom one"):
        spark.read.format("raylog").options(**options).schema("value string").load().count()
    with pytest.raises(
        Exception, match="endingOffsets: an ending offset or timestamp is not valid in streaming queries"
    ):
        Query(spark, cluster.bootstrap_servers, tmp_path, options).run(endingOffsets="latest")


def test_a_query_that_failed_in_a_batch_repeats_it_and_keeps_its_state(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient, tmp_path: Path
) -> None:
    topic = Topic(cluster, admin, "state")
    topic.send(100)
    query = Query(spark, topic.servers, tmp_path, {"subscribe": "state", "maxOffsetsPerTrigger": 30})
    totals: dict[int, Counter[str]] = {}
    tries: list[tuple[int, int]] = []

    def store(frame: DataFrame, batch: int) -> None:
        totals[batch] = Counter({bytes(row["key"]).decode(): row["count"] for row in frame.collect()})
        tries.append((batch, totals[batch].total()))
        if tries[-1] == (2, 90) and tries.count((2, 90)) == 1:
            raise RuntimeError("the sink is broken")

    with pytest.raises(Exception, match="the sink is broken"):
        query.run(query.source().groupBy("key").count(), store, "complete")
    topic.send(25)  # after the batch was planned: not part of it
    query_id = query.run(query.source().groupBy("key").count(), store, "complete")
    assert tries == [(0, 30), (1, 60), (2, 90), (2, 90), (3, 119), (4, 125)]
    assert totals[4] == {str(key): 25 for key in range(5)}
    assert query.offsets(1) == {"state": {"0": 30, "1": 30}}
    assert query.offsets(4) == {"state": {"0": 63, "1": 62}}

    began = time.monotonic()
    committed: dict[int, int] = {}
    while committed != {0: 63, 1: 62}:
        assert time.monotonic() < began + HANG_SECONDS, committed
        shown = admin.list_consumer_group_offsets(f"spark-{query_id}")
        committed = {tp.partition: found.offset for tp, found in shown.items() if found is not None}


def test_available_now_reads_what_was_there_at_its_start(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient, tmp_path: Path
) -> None:
    topic = Topic(cluster, admin, "now")
    topic.send(20)
    query = Query(spark, topic.servers, tmp_path, {"subscribe": "now", "maxOffsetsPerTrigger": 12})

    def store(frame: DataFrame, batch: int) -> None:
        query._store(frame, batch)
        if batch == 0:
            topic.send(10)
            admin.create_partitions({"now": 3})

    query.run(store=store, minOffsetsPerTrigger=10, maxTriggerDelay="1h")
    assert query.all_values == list(range(20))
    assert [len(values) for values in query.values.values()] == [12, 8]
    topic.send(5, partition=2)
    query.run(startingOffsets="latest")  # applies to new queries only: partitions that were added are read from 0
    assert query.all_values == list(range(35))
    assert query.offsets(max(query.values)) == {"now": {"0": 15, "1": 15, "2": 5}}


def test_records_that_retention_deleted_before_they_were_read_fail_the_query_or_are_left_out(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient, tmp_path: Path
) -> None:
    topic = Topic(cluster, admin, "old")
    topic.send(20)
    query = Query(spark, topic.servers, tmp_path, {"subscribe": "old"})
    query.run()
    topic.send(20)
    admin.delete_records({("old", 0): 15})
    with pytest.raises(Exception, match=r"old-0: offset 10 no longer exists, the earliest is 15.*failOnDataLoss"):
        query.run()
    query.run(failOnDataLoss=False)
    assert query.all_values == [number for number in range(40) if number % 2 or not 20 <= number < 30]


def test_a_batch_that_was_planned_before_its_records_were_deleted_fails_or_leaves_them_out(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient, tmp_path: Path
) -> None:
    topic = Topic(cluster, admin, "replayed", partitions=1)
    topic.send(20)
    query = Query(spark, topic.servers, tmp_path, {"subscribe": "replayed"})
    query.run()
    topic.send(20)

    def store(frame: DataFrame, batch: int) -> None:
        admin.delete_records({("replayed", 0): 25})
        raise RuntimeError("the sink is broken")

    with pytest.raises(Exception, match="the sink is broken"):
        query.run(store=store)
    with pytest.raises(Exception, match="failOnDataLoss"):
        query.run()
    query.run(failOnDataLoss=False)
    assert query.values == {0: list(range(20)), 1: list(range(25, 40))}


def test_a_query_that_failed_in_its_first_batch_starts_again_at_the_offsets_that_were_the_latest(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient, tmp_path: Path
) -> None:
    topic = Topic(cluster, admin, "late")
    topic.send(10)
    query = Query(spark, topic.servers, tmp_path, {"subscribe": "late", "startingOffsets": "latest"})

    def store(frame: DataFrame, batch: int) -> None:
        topic.send(10)
        admin.create_partitions({"late": 3})
        raise RuntimeError("the sink is broken")

    with pytest.raises(Exception, match="the sink is broken"):
        query.run(store=store)
    topic.send(5, partition=2)
    query.run()
    assert query.all_values == list(range(10, 25))


def test_a_deleted_topic_fails_the_query_or_is_left_out(
    spark: SparkSession, cluster: raylog.Cluster, admin: raylog.AdminClient, tmp_path: Path
) -> None:
    kept, gone = Topic(cluster, admin, "kept", partitions=1), Topic(cluster, admin, "gone", partitions=1)
    kept.send(10)
    gone.sent = 100
    gone.send(5)
    query = Query(spark, kept.servers, tmp_path, {"subscribe": "kept,gone"})
    query.run()
    admin.delete_topics("gone")
    kept.send(10)
    with pytest.raises(Exception, match=r"gone-0 is gone.*failOnDataLoss"):
        query.run()
    query.run(failOnDataLoss=False)
    assert query.all_values == [*range(20), *range(100, 105)]
    assert query.offsets(max(query.values)) == {"kept": {"0": 20}}


def test_a_batch_waits_for_enough_records_or_long_enough(cluster: raylog.Cluster, admin: raylog.AdminClient) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

    from raylog.protocol.records.arrow import arrow_schema
    from raylog.raydp_bridge.data_source import StreamReader
    from raylog.raydp_bridge.read_options import ReadOptions

    topic = Topic(cluster, admin, "patient")

    def reader(**options: Any) -> StreamReader:
        given = {"kafka.bootstrap.servers": topic.servers, "subscribe": "patient", **options}
        parsed = ReadOptions.parse(given, streaming=True)
        return StreamReader(parsed, from_arrow_schema(arrow_schema(parsed.columns)))

    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    assert reader(minOffsetsPerTrigger=5).getDefaultReadLimit() == ReadMinRows(5)
    both = reader(minOffsetsPerTrigger=10, maxOffsetsPerTrigger=20, maxTriggerDelay="1h")
    limit = both.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    start = both.initialOffset()
    assert start == {"patient": {"0": 0, "1": 0}}
    topic.send(2)
    assert both.initialOffset() == start
    assert both.latestOffset(start, limit) is start  # the first batch stores the latest offsets, and has no rows
    first = both.latestOffset(start, limit)  # the first batch with rows does not wait
    assert first == {"patient": {"0": 1, "1": 1}}
    topic.send(8)
    assert both.latestOffset(first, limit) is first
    assert both.latestOffset(first, ReadAllAvailable()) == {"patient": {"0": 5, "1": 5}}
    topic.send(40)
    second = both.latestOffset(first, limit)
    assert second == {"patient": {"0": 11, "1": 11}}
    assert both.reportLatestOffset() == {"patient": {"0": 25, "1": 25}}
    assert [each.range.offset_count for each in both.partitions(first, second)] == [10, 10]
    assert both.partitions(second, second) == []
    impatient = reader(minOffsetsPerTrigger=1000, maxTriggerDelay="0s")
    assert impatient.latestOffset(first, impatient.getDefaultReadLimit()) == {"patient": {"0": 25, "1": 25}}
    assert impatient.latestOffset(second, impatient.getDefaultReadLimit()) == {"patient": {"0": 25, "1": 25}}
