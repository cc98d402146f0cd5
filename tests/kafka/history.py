"""What a real Kafka is made to write: topics that between them hold every kind of batch and of file.

codecs        each compression, keys, tombstones, headers; idempotent and not; three segments
transactions  a committed one, an aborted one, one left open, records outside of any; two segments
deleted       DeleteRecords has moved its log start offset into the middle of a batch
compacted     Kafka's cleaner was here: a segment ends before the next one begins
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka_peer import KafkaPeer

NOW = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000
SEGMENT_AGE = 8 * DAY_MS
"""A record that is so much newer than a segment's first one opens another: segment.ms is seven days."""
SEGMENT_BYTES_MIN = 1 << 20
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(SEGMENT_BYTES_MIN),
}
ANSWER_SECONDS = 30.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = ("codecs", "compacted", "deleted", "transactions")
CLEANED_SECONDS = 60.0


class Server(Protocol):
    """Kafka or raylog."""

    @property
    def bootstrap_servers(self) -> str: ...


class Row(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def write_history(peer: KafkaPeer) -> None:
    """Makes and fills the topics."""
    create_topic(peer, "codecs", config={"index.interval.bytes": "200"})
    write_codecs(peer)
    create_topic(peer, "deleted")
    write_deleted(peer)
    create_topic(peer, "compacted", config=COMPACTED)
    write_compacted(peer)
    create_topic(peer, "transactions")
    write_transactions(peer)


def create_topic(
    server: Server,
    topic: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] = MappingProxyType({}),
) -> None:
    new = NewTopic(topic, partitions, replication_factor, config=dict(config))
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})  # it must live until the answer is there
    admin.create_topics([new], operation_timeout=ANSWER_SECONDS)[topic].result(ANSWER_SECONDS)


def write_codecs(peer: Server, topic: str = "codecs", *, partition: int = 0, timestamp_ms: int = NOW) -> None:
    for number, codec in enumerate(CODECS):
        settings = {"compression.type": codec, "enable.idempotence": number % 2 == 1, "linger.ms": 50}
        with producing(peer, **settings) as producer:
            for batch in range(3):
                for record in range(4):
                    producer.produce(
                        topic,
                        partition=partition,
                        key=None if record == 0 else f"{codec}-{record}".encode(),
                        value=None if record == 1 else f"{codec} {batch} {record} ".encode() * 20,
                        headers=[("h", b"v"), ("empty", b""), ("none", None)] if record == 2 else [],
                        timestamp=timestamp_ms + number // 2 * SEGMENT_AGE + batch * 10 + record,
                    )
                flush(producer)


def write_deleted(peer: KafkaPeer) -> None:
    with producing(peer, **{"linger.ms": 50}) as producer:
        for batch in range(3):
            for record in range(5):
                producer.produce(
                    "deleted", partition=0, value=f"{batch} {record}".encode(), timestamp=NOW + batch * SEGMENT_AGE
                )
            flush(producer)
    delete_records(peer, "deleted", 7)


def delete_records(peer: KafkaPeer, topic: str, before_offset: int) -> None:
    admin = peer.admin()
    for future in admin.delete_records([TopicPartition(topic, 0, before_offset)]).values():
        future.result(ANSWER_SECONDS)


def write_compacted(peer: KafkaPeer) -> None:
    """Three segments of a large record and a small one, whose newest version is in the last: so the first segment ends
    before the next one begins."""
    noise = random.Random(0)
    with producing(peer) as producer:
        for number in range(3):
            for key, value in ((b"large-%d" % number, noise.randbytes(600_000)), (b"same", b"%d" % number)):
                producer.produce("compacted", partition=0, key=key, value=value, timestamp=NOW)
                flush(producer)
    deadline = time.monotonic() + CLEANED_SECONDS
    while [row.offset for row in consume(peer, "compacted")] != [0, 2, 3, 4, 5]:
        assert time.monotonic() < deadline, "Kafka did not compact"
        time.sleep(0.2)


def write_transactions(peer: KafkaPeer, topic: str = "transactions") -> None:
    """Leaves the last transaction open."""
    with producing(peer, **{"transactional.id": "first"}) as producer:
        producer.init_transactions(ANSWER_SECONDS)
        for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
            producer.begin_transaction()
            for record in range(3):
                _put(producer, topic, f"{end.__name__} {record}".encode(), NOW + number * SEGMENT_AGE)
            flush(producer)
            end(ANSWER_SECONDS)
    with producing(peer) as producer:
        _put(producer, topic, b"plain", NOW + SEGMENT_AGE)
        flush(producer)
    settings = {"transactional.id": "second", "transaction.timeout.ms": 900_000}
    left_open = Producer({"bootstrap.servers": peer.bootstrap_servers, **settings, **QUIET})
    left_open.init_transactions(ANSWER_SECONDS)
    left_open.begin_transaction()
    _put(left_open, topic, b"open", NOW + SEGMENT_AGE)
    flush(left_open)


def end_transaction(peer: KafkaPeer) -> None:
    """The transaction that `write_transactions` left open is aborted by a new producer with its id."""
    with producing(peer, **{"transactional.id": "second"}) as producer:
        producer.init_transactions(ANSWER_SECONDS)


QUIET = {"log_level": 0, "error_cb": lambda error: None}
"""For clients that outlive their broker."""


@contextmanager
def producing(peer: Server, **settings: object) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": peer.bootstrap_servers, **settings, **QUIET})
    yield producer
    flush(producer)


def _put(producer: Producer, topic: str, value: bytes, timestamp_ms: int) -> None:
    producer.produce(topic, partition=0, value=value, timestamp=timestamp_ms)


def flush(producer: Producer) -> None:
    assert producer.flush(ANSWER_SECONDS) == 0


def consume(peer: Server, topic: str, *, isolation_level: str = "read_uncommitted", partition: int = 0) -> list[Row]:
    """Every record up to the end that this isolation level knows."""
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap_servers,
            "group.id": "history",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    rows: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(ANSWER_SECONDS)
            assert message is not None, f"{len(rows)} records of {topic}, then nothing for {ANSWER_SECONDS} s"
            error = message.error()
            if error is None:
                rows.append(_row(message))
            else:
                assert error.name() == "_PARTITION_EOF", error
                return rows
    finally:
        consumer.close()


def _row(message: Message) -> Row:
    offset = message.offset()
    assert offset is not None
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Row(offset, message.key(), message.value(), message.timestamp()[1], tuple(headers))
