"""Topics with every codec and oddity, and their rows as a stock consumer and as Spark shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as StockPartition

from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 2
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


def write_oddities(client: RawClient, tp: TopicPartition) -> None:
    records = oddities(tp.partition)
    for codec in Codec:
        client.produce(tp, build_batch(records, codec=codec))
        client.produce(tp, build_batch(records[:1], codec=codec))
    sequence = 0
    for size in (3, 10, 1):
        client.produce(tp, build_batch(records[:size], producer_id=4711, producer_epoch=0, base_sequence=sequence))
        sequence += size


def interleave_transactions(bootstrap_servers: str, topic: str, *, ended: bool) -> None:
    """Of four, one is committed and three are aborted, or all stay open."""
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"{topic}-{ended}-{number}",
                "transaction.timeout.ms": 900_000,
                "compression.type": "lz4" if number % 2 else "none",
            }
        )
        for number in range(4)
    ]
    for producer in producers:
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for value in (b"one", b"two"):
                producer.produce(topic, value, b"key", partition)
        assert producer.flush(30) == 0
    for producer in producers if ended else ():
        (producer.commit_transaction if producer is producers[2] else producer.abort_transaction)(30)


def by_stock_consumer(bootstrap_servers: str, topic: str, isolation_level: str = "read_committed") -> list[Row]:
    config = {"group.id": "same", "log_level": 4, "enable.partition.eof": True, "isolation.level": isolation_level}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, **config})
    rows = []
    for partition in range(PARTITIONS):
        consumer.assign([StockPartition(topic, partition, OFFSET_BEGINNING)])
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
