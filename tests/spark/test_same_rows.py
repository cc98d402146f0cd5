"""A topic with every codec and oddity has the same rows over every transport, with a stock consumer and in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as StockPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from raylog.client.network_loop import NetworkLoop
from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.raydp_bridge import register
from raylog.raydp_bridge.source import read_topic
from raylog.transport import unix
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.ray, pytest.mark.spark]

NAME = "odd"
PARTITIONS = 2
TOPICS = {"odd": {}, "odd-append-time": {"message.timestamp.type": "LogAppendTime"}, "odd-transactions": {}}
DELETED_UPTO = 4
"""Inside the first batch: the beginning of the log is not that of a batch."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def oddities(partition: int) -> list[NewRecord]:
    long_ago = 1_356_998_400_000 + partition
    return [
        NewRecord(b"key", b"value", long_ago),
        NewRecord(None, b"no key", long_ago + 1),
        NewRecord(b"no value", None, long_ago + 2),
        NewRecord(None, None, long_ago + 3),
        NewRecord(b"", b"", long_ago + 4),
        NewRecord(b"before the batch's first", b"x", long_ago - 1_000_000),
        NewRecord(b"twelve bytes", b"thirteen byte", long_ago + 5),
        NewRecord(b"\x00\xff", bytes(range(256)) * 1200, long_ago + 6),
        NewRecord(b"headers", b"h", long_ago + 7, (("a", b"1"), ("a", None), ("", b""), ("\u00fc", b"\xff" * 300))),
        NewRecord("schlüssel".encode(), b"last", long_ago + 1_000_000_000),
    ]


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[raylog.Cluster]:
    with raylog.start(NAME, brokers=2, config={"log.segment.bytes": 1 << 20}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 4})
        wanted = [NewTopic(name, PARTITIONS, config={"retention.ms": "-1", **more}) for name, more in TOPICS.items()]
        for created in admin.create_topics(wanted).values():
            created.result(30)
        with RawClient(cluster.bootstrap_servers, client_id="writer") as client:
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    write(client, TopicPartition(topic, partition))
        interleave_transactions(cluster, "odd-transactions")
        ends = [StockPartition(topic, partition, DELETED_UPTO) for topic in TOPICS for partition in range(PARTITIONS)]
        for deleted in admin.delete_records(ends).values():
            deleted.result(30)
        yield cluster


def write(client: RawClient, tp: TopicPartition) -> None:
    records = oddities(tp.partition)
    for codec in Codec:
        client.produce(tp, build_batch(records, codec=codec))
        client.produce(tp, build_batch(records[:1], codec=codec))
    sequence = 0
    for size in (3, 10, 1):
        client.produce(tp, build_batch(records[:size], producer_id=4711, producer_epoch=0, base_sequence=sequence))
        sequence += size


def interleave_transactions(cluster: raylog.Cluster, topic: str) -> None:
    """One is committed, three are aborted, and four stay open."""
    producers = [
        Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": f"{number}",
                "transaction.timeout.ms": 900_000,
                "compression.type": "lz4" if number % 2 else "none",
            }
        )
        for number in range(4)
    ]
    for producer in producers:
        producer.init_transactions(30)
    for ends in (True, False):
        for producer in producers:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                for value in (b"one", b"two"):
                    producer.produce(topic, value, b"key", partition)
            assert producer.flush(30) == 0
        for producer in producers if ends else ():
            (producer.commit_transaction if producer is producers[2] else producer.abort_transaction)(30)


def by_stock_consumer(cluster: raylog.Cluster, topic: str) -> list[Row]:
    config = {"group.id": "same", "log_level": 4, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **config})
    rows = []
    for partition in range(PARTITIONS):
        tp = StockPartition(topic, partition, OFFSET_BEGINNING)
        assert consumer.get_watermark_offsets(tp, timeout=30)[0] == DELETED_UPTO
        consumer.assign([tp])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            kind, timestamp_ms = message.timestamp()
            headers: Any = message.headers() or ()
            rows.append(
                Row(
                    partition,
                    message.offset() or 0,
                    timestamp_ms,
                    kind - 1,
                    message.key(),
                    message.value(),
                    tuple(headers),
                )
            )
    consumer.close()
    return rows


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


def row_of(each: dict[str, Any]) -> Row:
    headers = tuple((header["key"], header["value"]) for header in each["headers"] or ())
    return Row(
        each["partition"],
        each["offset"],
        (each["timestamp"].astimezone(UTC) - EPOCH) // timedelta(milliseconds=1),
        each["timestampType"],
        each["key"],
        each["value"],
        headers,
    )


READERS = {
    **{transport: by_transport(transport) for transport in ("mapped", "unix", "tcp", "handle")},
    "arrow": by_arrow,
    "dataset": by_dataset,
}


@pytest.fixture(scope="module")
def expected(cluster: raylog.Cluster) -> dict[str, list[Row]]:
    rows = {topic: by_stock_consumer(cluster, topic) for topic in TOPICS}
    batches = len(Codec) * (len(oddities(0)) + 1) + 14
    for topic, found in rows.items():
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


def rows_of(frame: DataFrame) -> list[Row]:
    frame = frame.selectExpr("*", "unix_millis(timestamp) AS timestamp_ms")
    return [
        Row(
            row["partition"],
            row["offset"],
            row["timestamp_ms"],
            row["timestampType"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            tuple((key, None if value is None else bytes(value)) for key, value in row["headers"] or ()),
        )
        for row in frame.collect()
    ]
