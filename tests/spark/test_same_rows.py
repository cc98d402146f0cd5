"""A topic with every codec and oddity has the same rows over every transport, with a stock consumer and in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition as StockPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from raylog.client.network_loop import NetworkLoop
from raylog.core.ids import TopicPartition
from raylog.protocol.records.compression import Codec
from raylog.raydp_bridge import register
from raylog.raydp_bridge.source import read_topic
from raylog.transport import unix
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.odd_topics import (
    PARTITIONS,
    Row,
    by_stock_consumer,
    interleave_transactions,
    oddities,
    row_of,
    rows_of,
    write_oddities,
)
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.ray, pytest.mark.spark]

NAME = "odd"
TOPICS = {"odd": {}, "odd-append-time": {"message.timestamp.type": "LogAppendTime"}, "odd-transactions": {}}
DELETED_UPTO = 4
"""Inside the first batch: the beginning of the log is not that of a batch."""


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[raylog.Cluster]:
    with raylog.start(NAME, brokers=2, config={"log.segment.bytes": 1 << 20}, **WITHOUT_COORDINATORS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 4})
        wanted = [NewTopic(name, PARTITIONS, config={"retention.ms": "-1", **more}) for name, more in TOPICS.items()]
        for created in admin.create_topics(wanted).values():
            created.result(30)
        with RawClient(cluster.bootstrap_servers, client_id="writer") as client:
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    write_oddities(client, TopicPartition(topic, partition))
        for ended in (True, False):
            interleave_transactions(cluster.bootstrap_servers, "odd-transactions", ended=ended)
        ends = [StockPartition(topic, partition, DELETED_UPTO) for topic in TOPICS for partition in range(PARTITIONS)]
        for deleted in admin.delete_records(ends).values():
            deleted.result(30)
        yield cluster


def by_transport(transport: str) -> Callable[[raylog.Cluster, str], list[Row]]:
    def read(cluster: raylog.Cluster, topic: str) -> list[Row]:
        rows = []
        servers, mapped = cluster.bootstrap_servers, transport == "mapped"
        with pytest.MonkeyPatch.context() as closed:
            if transport in ("tcp", "handle"):
                closed.setattr(unix, "runtime_dirs", tuple)
            if transport == "handle":
                servers = f"ray://{cluster.name}"
                closed.setattr(NetworkLoop, "_connect_by_network", no_path)
            for partition in range(PARTITIONS):
                with raylog.PartitionReader(servers, topic, partition, mapped=mapped) as reader:
                    while records := reader.read_records(max_bytes=100_000):
                        assert reader.reads_files == mapped
                        for offset, timestamp_ms, timestamp_type, key, value, headers in records:
                            rows.append(Row(partition, offset, timestamp_ms, timestamp_type, key, value, headers))
        return rows

    return read


def no_path(*_: object) -> None:
    raise OSError("no path leads to the broker")


def by_arrow(cluster: raylog.Cluster, topic: str) -> list[Row]:
    rows = []
    for partition in range(PARTITIONS):
        with raylog.PartitionReader(cluster.bootstrap_servers, topic, partition) as reader:
            while batches := reader.read_arrow():
                rows += [row_of(each) for batch in batches for each in batch.to_pylist()]
    return rows


def by_dataset(cluster: raylog.Cluster, topic: str) -> list[Row]:
    dataset = raylog.read_dataset(topic, bootstrap_servers=cluster.bootstrap_servers, min_partitions=5)
    return [row_of(each) for each in dataset.take_all()]


READERS = {
    **{transport: by_transport(transport) for transport in ("mapped", "unix", "tcp", "handle")},
    "arrow": by_arrow,
    "dataset": by_dataset,
}


@pytest.fixture(scope="module")
def expected(cluster: raylog.Cluster) -> dict[str, list[Row]]:
    rows = {topic: by_stock_consumer(cluster.bootstrap_servers, topic) for topic in TOPICS}
    batches = len(Codec) * (len(oddities(0)) + 1) + 14
    for topic, found in rows.items():
        assert {row.offset for row in found if row.offset <= DELETED_UPTO} == {DELETED_UPTO}
        assert len(found) == PARTITIONS * (batches - DELETED_UPTO + 2 * (topic == "odd-transactions"))
    first = [row for row in rows["odd"] if row.partition == 0]
    wanted = [record for _ in Codec for record in (*oddities(0), oddities(0)[0])]
    assert [(row.key, row.value, row.timestamp_ms) for row in first][:30] == [
        record[:3] for record in wanted[DELETED_UPTO:][:30]
    ]
    assert {row.timestamp_type for row in rows["odd-append-time"]} == {1}
    return rows


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("reader", READERS)
def test_all_connectors_return_the_same_rows(
    cluster: raylog.Cluster, expected: dict[str, list[Row]], reader: str, topic: str
) -> None:
    assert sorted(READERS[reader](cluster, topic), key=str) == sorted(expected[topic], key=str)


def test_a_task_of_ray_reads_the_files_as_a_table(cluster: raylog.Cluster, expected: dict[str, list[Row]]) -> None:
    import ray

    def latest(servers: str) -> dict[bytes, tuple[int, int]]:
        with raylog.read_table("odd-transactions", bootstrap_servers=servers) as table:
            assert all(reader.reads_files for reader in table._readers)
            rows = table.to_arrow(["key", "partition", "offset"]).to_pylist()
            return {row["key"]: (row["partition"], row["offset"]) for row in rows}

    model: dict[bytes, tuple[int, int]] = {}
    for row in sorted(expected["odd-transactions"]):
        if row.key is not None and row.value is not None:
            model[row.key] = row.partition, row.offset
        elif row.key is not None:
            model.pop(row.key, None)
    task: Any = ray.remote(num_cpus=0)(latest)
    assert ray.get(task.remote(cluster.bootstrap_servers)) == model


@pytest.mark.parametrize("topic", TOPICS)
def test_spark_shows_the_same_rows(
    spark: SparkSession, cluster: raylog.Cluster, expected: dict[str, list[Row]], topic: str
) -> None:
    frame = read_topic(spark, topic, bootstrap_servers=cluster.bootstrap_servers, min_partitions=3)
    assert sorted(rows_of(frame), key=str) == sorted(expected[topic], key=str)


@pytest.mark.spark4
@pytest.mark.parametrize("topic", TOPICS)
def test_the_data_source_of_spark_4_shows_the_same_rows(
    spark: SparkSession, cluster: raylog.Cluster, expected: dict[str, list[Row]], topic: str
) -> None:
    register(spark)
    options: dict[str, Any] = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    options |= {"includeHeaders": True, "minPartitions": 3, "startingOffsets": "earliest"}
    frame = spark.read.format("raylog").options(**options).load()
    assert sorted(rows_of(frame), key=str) == sorted(expected[topic], key=str)

    name = topic.replace("-", "_")
    stream = spark.readStream.format("raylog").options(**options, maxOffsetsPerTrigger=30).load()
    query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(rows_of(spark.table(name)), key=str) == sorted(expected[topic], key=str)
