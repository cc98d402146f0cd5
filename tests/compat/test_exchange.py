"""Records that one stock client writes, in any codec, are read equal by every other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import pytest

from tests.compat.clients import CLIENTS
from tests.compat.confluent import Confluent
from tests.compat.kcat import Kcat
from tests.compat.row import CODECS, Client, Row
from tests.compat.stored import stored_batches
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

pytestmark = pytest.mark.compat

PARTITIONS = 2
NEW_YEAR_MS = 1_357_000_000_000
EVERY_BYTE = bytes(range(256))
COMPRESSIBLE_BYTES = 1000
READS_MAX = 100
"""A batch that holds more than this of our text shrinks in every codec; a smaller one may be stored as it is."""


def chunks_of(partition: int) -> list[list[Row]]:
    """Records for one partition, to be written in several goes."""
    plain: list[tuple[bytes | None, bytes | None]] = [
        (b"key", b"value"),
        (None, b"no key"),
        (b"", b"an empty key"),
        (b"no value", None),
        (b"an empty value", b""),
        (None, None),
        (b"", b""),
        (b"", None),
        (None, b""),
        (EVERY_BYTE, EVERY_BYTE[::-1]),
        ("ключ".encode(), "値".encode()),
        (b"\xff\xfe", b"\x00\n\r\n\x00"),
    ]
    odd = [Row(partition, 0, key, value, (), NEW_YEAR_MS - number) for number, (key, value) in enumerate(plain)]
    odd.append(Row(partition, 0, b"text", b"the quick brown fox " * 100, (), 1))
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (("one", b"1"),),
        (("twice", b"first"), ("twice", b"second"), ("once", b"")),
        (("null", None), ("имя", "значение".encode())),
        (("binary", b"\xff\x80\x01"), ("long", b"h" * 300)),
        (("nul", b"a\x00b"),),
        (),
    ]
    odd += [
        Row(partition, 0, b"h%d" % number, b"with headers " * 100, each, NEW_YEAR_MS + number)
        for number, each in enumerate(headers)
    ]
    many = [
        Row(partition, 0, b"%06d" % number, b"flight %d of %d, " % (number, partition) * 15, (), NEW_YEAR_MS + number)
        for number in range(300)
    ]
    large = [Row(partition, 0, None, b"".join(b"%d bottles, " % number for number in range(8000)), (), NEW_YEAR_MS)]
    return [odd, many, large, odd[::-1]]


class Written:
    """A topic that one client has filled: what it was given, and what the broker has stored."""

    def __init__(self, writer: Client, codec: str, topic: str, cluster: RunningCluster) -> None:
        self.topic = topic
        self.expected: list[Row] = []
        since_ms = time.time_ns() // 1_000_000
        for partition in range(PARTITIONS):
            offset = 0
            for chunk in chunks_of(partition):
                rows = [row for row in chunk if writer.why_not(row) is None]
                offsets = writer.produce(self.topic, partition, rows, codec)
                assert offsets == list(range(offset, offset + len(rows)))
                offset += len(rows)
                self.expected += [row._replace(offset=number) for row, number in zip(rows, offsets, strict=True)]
        until_ms = time.time_ns() // 1_000_000
        self.batches = [
            batch for partition in range(PARTITIONS) for batch in stored_batches(cluster, self.topic, partition)
        ]
        if not writer.sets_timestamps:
            chosen = {(row.partition, row.offset): row.timestamp_ms for batch in self.batches for row in batch.rows}
            self.expected = [row._replace(timestamp_ms=chosen[row[:2]]) for row in self.expected]
            assert all(since_ms <= (row.timestamp_ms or 0) <= until_ms for row in self.expected)

    def of(self, partition: int) -> list[Row]:
        return [row for row in self.expected if row.partition == partition]


@pytest.fixture(scope="module")
def written(cluster: RunningCluster) -> Callable[[type[Client], str], Written]:
    """Each client writes once in each codec, when that is first asked for."""

    @cache
    def write(client: type[Client], codec: str) -> Written:
        writer = client(cluster.bootstrap_servers)
        topic = f"from-{writer.name}-{codec}"
        create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
        return Written(writer, codec, topic, cluster)

    return write


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_batches_are_stored_in_the_producers_codec(
    written: Callable[[type[Client], str], Written], writer: type[Client], codec: str
) -> None:
    batches = written(writer, codec).batches
    assert len(batches) >= PARTITIONS * len(chunks_of(0))
    assert {batch.codec for batch in batches if batch.content_bytes > COMPRESSIBLE_BYTES} == {codec}
    assert {batch.codec for batch in batches} <= {codec, "none"}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_every_client_reads_what_every_client_writes(
    written: Callable[[type[Client], str], Written],
    bootstrap_servers: str,
    writer: type[Client],
    reader: type[Client],
    codec: str,
) -> None:
    source = written(writer, codec)
    rows = reader(bootstrap_servers).consume(source.topic, PARTITIONS)
    for partition in range(PARTITIONS):
        assert [row for row in rows if row.partition == partition] == source.of(partition)
    assert len(rows) == len(source.expected)


@pytest.mark.parametrize("client", CLIENTS)
def test_topics_are_listed_with_their_partitions(bootstrap_servers: str, client: type[Client]) -> None:
    topic = f"listed-by-{client.name}"
    create_topic(bootstrap_servers, topic, partitions=5)
    listed = client(bootstrap_servers).list_topics()
    assert listed[topic] == 5
    assert f"not-{topic}" not in listed


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_is_created_by_writing_to_it(bootstrap_servers: str, client: type[Client]) -> None:
    topic = f"created-by-{client.name}"
    one = Row(0, 0, b"k", b"v")
    assert client(bootstrap_servers).produce(topic, 0, [one], "none") == [0]
    assert client(bootstrap_servers).list_topics()[topic] == 1
    rows: list[Row] = []
    for _ in range(READS_MAX):  # with acks=1, aiokafka's default, it may be acknowledged before it is committed
        rows = rows or client(bootstrap_servers).consume(topic, 1)
    assert [row._replace(timestamp_ms=None) for row in rows] == [one]


@pytest.mark.parametrize("reader", CLIENTS)
def test_empty_partitions_are_read_to_their_end(bootstrap_servers: str, reader: type[Client]) -> None:
    topic = f"nearly-empty-for-{reader.name}"
    create_topic(bootstrap_servers, topic, partitions=3)
    one = Row(1, 0, b"k", b"v", (), NEW_YEAR_MS)
    assert Confluent(bootstrap_servers).produce(topic, 1, [one], "none") == [0]
    assert reader(bootstrap_servers).consume(topic, 3) == [one]


def test_a_missing_client_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(AssertionError, match="kcat is not on PATH"):
        Kcat("127.0.0.1:9092")
