"""A table has the latest value of each key of a topic, whatever happens to the topic between two refreshes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

import raylog
from raylog.client import topic_table
from raylog.client.partition_reader import PartitionReader
from raylog.client.topic_table import TopicTable
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.disk import RealDisk
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.columnar import Columns
from raylog.protocol.records.compression import Codec
from raylog.transport import unix
from tests.logstore.test_cleaning import run_cleaning
from tests.support.administration import create_topic, delete_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.raw_client import RawClient
from tests.support.stable_offset import wait_until_stable

WAIT_MS = 20_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {"log.cleaner.enable": "false", "transaction.state.log.num.partitions": 1}
    with cluster_thread(config, tmp_path_factory.mktemp("table")) as running:
        yield running


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap_servers, client_id="writer") as client:
        yield client


@pytest.fixture(params=["mapped", "wire"])
def topic(request: pytest.FixtureRequest, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of two partitions, with and without the files in sight."""
    if request.param == "wire":
        monkeypatch.setattr(unix, "runtime_dirs", lambda: ())
    monkeypatch.setattr(topic_table, "PARTITIONS_CHECKED_SECONDS", 0.0)
    name = f"{request.node.originalname}-{request.param}".replace("[", "-").replace("]", "")
    create(client, name)
    return name


def create(client: RawClient, topic: str, **configs: str) -> None:
    create_topic(client, topic, num_partitions=2, replication_factor=1, configs=configs)


def open_table(cluster: RunningCluster, topic: str, **options: Any) -> TopicTable:
    table: TopicTable = raylog.read_table(topic, bootstrap_servers=cluster.bootstrap_servers, **options)
    assert all(reader.reads_files == bool(unix.runtime_dirs()) for reader in table._readers if reader.position)
    return table


def put(
    client: RawClient,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    partition: int = 0,
    codec: Codec = Codec.NONE,
) -> None:
    client.produce(TopicPartition(topic, partition), build_batch([NewRecord(key, value, 1000)], codec=codec))


def test_a_mapping_that_is_refreshed(cluster: RunningCluster, client: RawClient, topic: str) -> None:
    put(client, topic, b"a", b"1")
    put(client, topic, b"b", b"2", 1)
    put(client, topic, b"a", b"3")
    with open_table(cluster, topic) as table:
        assert dict(table) == {b"a": b"3", b"b": b"2"}
        assert (len(table), table[b"a"], b"b" in table) == (2, b"3", True)
        put(client, topic, b"b", None, 1)
        put(client, topic, b"c", b"", 1)
        assert table.get(b"b") == b"2"
        assert table.refresh() == 2
        assert table.refresh() == 0
        assert dict(table) == {b"a": b"3", b"c": b""}
        assert table.get(b"b") is None
        with pytest.raises(KeyError):
            table[b"b"]
        found = table.to_arrow()
        assert found.column_names == ["key", "value", "partition", "offset", "timestamp"]
        rows = found.select(["key", "value", "partition", "offset"]).to_pylist()
        assert sorted(map(tuple, map(dict.values, rows))) == [(b"a", b"3", 0, 1), (b"c", b"", 1, 2)]
        assert table.to_arrow(["value"]).column_names == ["value"]
        for wrong in ([], ["headers"], ["key", "key"], "key"):
            with pytest.raises(ConfigError, match="columns="):
                table.to_arrow(wrong)
    assert table[b"a"] == b"3", "the content stays"


def test_random_changes_and_compaction(cluster: RunningCluster, client: RawClient, topic: str) -> None:
    """A key stays in its partition; a compaction between two reads removes what is outdated."""
    create(client, f"{topic}-compacted", **{"cleanup.policy": "compact", "delete.retention.ms": "3600000"})
    topic = f"{topic}-compacted"
    rng = random.Random(topic)
    model: dict[bytes, bytes] = {}
    with open_table(cluster, topic) as table:
        for _ in range(6):
            for _ in range(rng.randrange(20)):
                number = rng.randrange(12)
                key, value = b"k%d" % number, None if rng.random() < 0.3 else b"%d" % rng.randrange(1000)
                put(client, topic, key, value, number % 2, rng.choice(list(Codec)))
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value
            if rng.random() < 0.5:
                cluster.do(lambda: compact(cluster, topic))
            table.refresh()
            assert table == model
        with open_table(cluster, topic) as fresh:
            assert fresh == model


def compact(cluster: RunningCluster, topic: str) -> None:
    for partition in range(2):
        log = cluster.broker.partitions[TopicPartition(topic, partition)].log
        log.roll(0)
        run_cleaning(log, RealDisk(), now_ms=2_000)


def test_only_committed_records(cluster: RunningCluster, client: RawClient, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    with open_table(cluster, topic) as table:
        for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce(topic, value, "k", 0)
            assert producer.flush(30) == 0
            before = dict(table)
            assert table.refresh() == 0
            end(30)
            wait_until_stable(cluster.bootstrap_servers, topic)
            assert table.refresh() == (value == "committed")
            assert table == (before if value == "aborted" else {b"k": b"committed"})
    with open_table(cluster, topic, isolation_level="read_uncommitted") as table:
        assert table == {b"k": b"committed"}


def test_records_without_key_are_counted(cluster: RunningCluster, client: RawClient, topic: str) -> None:
    put(client, topic, None, b"x")
    put(client, topic, b"k", b"v")
    with open_table(cluster, topic) as table:
        assert table == {b"k": b"v"}
        assert table.records_without_key == 1


def test_new_partitions(cluster: RunningCluster, client: RawClient, topic: str) -> None:
    with open_table(cluster, topic) as table:
        grown = CreatePartitionsTopic(name=topic, count=3, assignments=None)
        client.call_any(CreatePartitionsRequest(topics=(grown,), timeout_ms=WAIT_MS))
        put(client, topic, b"k", b"v", 2)
        assert table.refresh() == 1
        assert table == {b"k": b"v"}


def test_a_topic_that_is_created_again(cluster: RunningCluster, client: RawClient, topic: str) -> None:
    put(client, topic, b"old", b"v")
    with open_table(cluster, topic) as table:
        delete_topic(client, topic)
        with pytest.raises(KafkaError) as refused:
            table.refresh()
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert table == {b"old": b"v"}
        create(client, topic)
        for number in range(3):
            put(client, topic, b"new", b"%d" % number)
        assert table.refresh() == 3
        assert table == {b"new": b"2"}


def test_records_that_were_deleted_before_they_were_read(
    cluster: RunningCluster, client: RawClient, topic: str
) -> None:
    """Deletions may be among them, so the table is read again. What was read before it was deleted stays."""
    put(client, topic, b"a", b"1")
    put(client, topic, b"other", b"1", 1)
    with open_table(cluster, topic) as table:
        delete_before(client, topic, 1)
        assert table.refresh() == 0
        assert len(table) == 2
        put(client, topic, b"a", None)
        put(client, topic, b"b", b"2")
        delete_before(client, topic, 2)
        assert table.refresh() == 2
        assert table == {b"b": b"2", b"other": b"1"}


def delete_before(client: RawClient, topic: str, offset: int) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    client.call_any(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=(part,)),), timeout_ms=1000))


def test_a_truncated_log(cluster: RunningCluster, client: RawClient, topic: str) -> None:
    for number in range(3):
        put(client, topic, b"%d" % number, b"v")
    with open_table(cluster, topic) as table:
        cluster.do(lambda: truncate(cluster, TopicPartition(topic, 0)))
        assert table.refresh() == 1
        assert table == {b"0": b"v"}


def truncate(cluster: RunningCluster, tp: TopicPartition) -> None:
    """As after an unclean election."""
    cluster.broker.partitions[tp].log.truncate_to(Offset(1))
    cluster.broker.partition_changed(tp)


def test_a_refresh_waits_for_the_first_record(
    cluster: RunningCluster, client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    read = PartitionReader.read_columns

    def noted(reader: PartitionReader, columns: Sequence[str], *, max_bytes: int, max_wait_ms: int) -> list[Columns]:
        waits.append(max_wait_ms)
        return read(reader, columns, max_bytes=max_bytes, max_wait_ms=max_wait_ms)

    monkeypatch.setattr(PartitionReader, "read_columns", noted)
    with open_table(cluster, topic) as table:
        writer = threading.Timer(0.2, put, (client, topic, b"k", b"v", 1))
        writer.start()
        assert table.refresh(max_wait_ms=WAIT_MS) == 1
        writer.join()
        assert table == {b"k": b"v"}
        assert max(waits) == topic_table.WAIT_MS, "it does not ask in a loop"


def test_a_topic_that_does_not_exist(cluster: RunningCluster) -> None:
    with pytest.raises(KafkaError) as refused:
        raylog.read_table("missing", bootstrap_servers=cluster.bootstrap_servers)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
