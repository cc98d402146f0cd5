"""raylog's readers show what stock consumers show of a stock producer's transactions, by mapped files and by Fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as StockPartition

from raylog.client import range_reader
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.client_config import ClientConfig
from raylog.client.partition_reader import PartitionReader
from raylog.core.errors import ConfigError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.disk import RealDisk
from raylog.protocol.records.isolation import IsolationLevel
from raylog.protocol.records.reader import read_batches
from tests.logstore.test_cleaning import run_cleaning
from tests.support.administration import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.raw_client import RawClient
from tests.support.stable_offset import wait_until_stable

TP = TopicPartition("t", 0)
PATIENCE_SECONDS = 30.0
WAIT_MS = 20_000
Rows = list[tuple[int, bytes | None]]
LEVELS: tuple[IsolationLevel, ...] = ("read_committed", "read_uncommitted")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    config = {
        "log.segment.bytes": 2000,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "log.cleaner.enable": "false",
    }
    with cluster_thread(config, tmp_path / "log") as running:
        with RawClient(running.bootstrap_servers, client_id="test") as client:
            create_topic(client, "t", num_partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
        yield running


class Writer:
    """A stock producer. Without an id it has no transactions."""

    def __init__(self, cluster: RunningCluster, transactional_id: str | None = None) -> None:
        config: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "none"}
        if transactional_id is not None:
            config |= {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
        self.producer = Producer(config)
        if transactional_id is not None:
            self.producer.init_transactions(PATIENCE_SECONDS)

    def send(self, *values: str) -> None:
        for value in values:
            self.producer.produce("t", value.encode() * 10, value.encode(), 0)
        assert self.producer.flush(PATIENCE_SECONDS) == 0


def write(cluster: RunningCluster) -> Callable[[], None]:
    """Transactions that are committed, aborted and left open, in turn and at once. Returns what commits the last."""
    plain, first, second, third = (Writer(cluster, name) for name in (None, "first", "second", "third"))
    for number in range(6):
        first.producer.begin_transaction()
        first.send(f"first {number}")
        second.producer.begin_transaction()
        second.send(f"second {number}", f"second {number} more")
        plain.send(f"plain {number}")
        first.send(f"first {number} more")
        (first.producer.abort_transaction if number % 2 else first.producer.commit_transaction)(PATIENCE_SECONDS)
        (second.producer.abort_transaction if number % 3 else second.producer.commit_transaction)(PATIENCE_SECONDS)
    wait_until_stable(cluster.bootstrap_servers, "t")
    third.producer.begin_transaction()
    third.send("third")
    plain.send("after the open one")

    def commit() -> None:
        third.producer.commit_transaction(PATIENCE_SECONDS)
        wait_until_stable(cluster.bootstrap_servers, "t")

    return commit


def by_stock_consumer(cluster: RunningCluster, level: str) -> Rows:
    config = {"group.id": "g", "isolation.level": level, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **config})
    consumer.assign([StockPartition("t", 0, OFFSET_BEGINNING)])
    rows: Rows = []
    while True:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        rows.append((message.offset() or 0, message.value()))
    consumer.close()
    return rows


def by_records(cluster: RunningCluster, level: IsolationLevel, *, mapped: bool) -> Rows:
    rows: Rows = []
    with PartitionReader(cluster.bootstrap_servers, "t", 0, isolation_level=level, mapped=mapped) as reader:
        while records := reader.read_records(max_bytes=600):
            rows += [(record.offset, record.value) for record in records]
        assert reader.reads_files is mapped
    return rows


def by_arrow(cluster: RunningCluster, level: IsolationLevel, *, mapped: bool) -> Rows:
    rows: Rows = []
    with PartitionReader(cluster.bootstrap_servers, "t", 0, isolation_level=level, mapped=mapped) as reader:
        while batches := reader.read_arrow(["offset", "value"], max_bytes=600):
            rows += [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]
    return rows


def by_range(cluster: RunningCluster, level: IsolationLevel, *, mapped: bool) -> Rows:
    config = ClientConfig.of(cluster.bootstrap_servers, isolation_level=level)
    tp = TopicPartition("t", 0)
    start, end = (range_reader.offsets_at(config, {tp: at})[tp] for at in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
    found = range_reader.fetch_range(config, "t", 0, start_offset=start, end_offset=end, mapped=mapped)
    return [(record.offset, record.value) for records in found for record in records]


def test_all_readers_agree_with_a_stock_consumer(cluster: RunningCluster) -> None:
    commit = write(cluster)
    for ended in (False, True):
        expected = {level: by_stock_consumer(cluster, level) for level in LEVELS}
        committed, uncommitted = expected.values()
        assert len(committed) == 6 + 3 * 2 + 2 * 2 + 2 * ended
        assert len(uncommitted) == 6 * 5 + 2
        for read in (by_records, by_arrow, by_range):
            for mapped in (True, False):
                for level in LEVELS:
                    assert read(cluster, level, mapped=mapped) == expected[level], (read, mapped, level)
        if not ended:
            commit()


def test_a_waiting_reader_gets_a_transaction_when_it_is_committed(cluster: RunningCluster) -> None:
    writer = Writer(cluster, "id")
    for mapped in (True, False):
        with PartitionReader(cluster.bootstrap_servers, "t", 0, offset="latest", mapped=mapped) as reader:
            writer.producer.begin_transaction()
            writer.send("a", "b")
            assert reader.read_records(max_wait_ms=50) == []
            writer.producer.commit_transaction(PATIENCE_SECONDS)
            assert [record.key for record in reader.read_records(max_wait_ms=WAIT_MS)] == [b"a", b"b"]


def test_the_latest_offset_is_the_last_stable_one(cluster: RunningCluster) -> None:
    writer = Writer(cluster, "id")
    Writer(cluster).send("before")
    writer.producer.begin_transaction()
    writer.send("open")
    for level, latest in zip(LEVELS, (1, 2), strict=True):
        with PartitionReader(cluster.bootstrap_servers, "t", 0, isolation_level=level, offset="latest") as reader:
            assert reader.position == latest


def test_a_reader_whose_file_a_cleaning_replaces(cluster: RunningCluster) -> None:
    write(cluster)()
    expected = by_stock_consumer(cluster, "read_committed")
    log = cluster.broker.partitions[TP].log

    def clean() -> None:
        log.roll(0)
        run_cleaning(log, RealDisk(), now_ms=(1 << 50) + log.cleaned_upto)

    seen: Rows = []
    with PartitionReader(cluster.bootstrap_servers, "t", 0) as reader:
        for _ in range(3):
            chunk = reader.read(max_bytes=300)
            assert chunk is not None
            records = read_batches(chunk.records, from_offset=chunk.start, aborted=chunk.aborted)
            seen += [(record.offset, record.value) for record in records]
            assert reader.accept(chunk)
            Writer(cluster).send(f"dirty {chunk.next_offset}")
            cluster.do(clean)
        assert log.aborted_transactions(Offset(0), Offset(20)) == []
        while records_read := reader.read_records(max_bytes=300):
            assert reader.reads_files
            seen += [(record.offset, record.value) for record in records_read]
    kept = [row for row in seen if not (row[1] or b"").startswith(b"dirty")]
    assert kept == expected


def test_the_level_is_taken_from_the_clients_properties() -> None:
    assert ClientConfig.of("a:1").reads_committed
    uncommitted = {"isolation.level": "read_uncommitted"}
    assert not ClientConfig.of("a:1", uncommitted).reads_committed
    assert ClientConfig.of("a:1", uncommitted, isolation_level="read_committed").reads_committed
    with pytest.raises(ConfigError, match=r"isolation\.level"):
        ClientConfig.of("a:1", isolation_level="serializable")
