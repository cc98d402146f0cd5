"""A partition reader uses the fastest available transport, and changes it without missing a record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raylog.client import partition_reader
from raylog.client.partition_reader import PartitionReader
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore import record_set
from raylog.protocol.records.batch import MalformedBatch
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.transport import unix
from tests.protocol.records.raw_batches import raw_batch, raw_record
from tests.support.administration import alter_quotas, create_topic, delete_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.raw_client import RawClient

TP = TopicPartition("t", 0)
WAIT_MS = 20_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_thread({}, tmp_path / "log", brokers=2) as running:
        yield running


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap_servers, client_id="writer") as client:
        create_topic(client, "t", num_partitions=2, replication_factor=1, configs={})
        yield client


def write(client: RawClient, *values: bytes, tp: TopicPartition = TP) -> None:
    client.produce(tp, build_batch([NewRecord(None, value, 1000) for value in values]))


def read(reader: PartitionReader) -> list[bytes | None]:
    return [record.value for record in reader.read_records(max_wait_ms=WAIT_MS)]


def test_files_on_the_leaders_node(cluster: RunningCluster, client: RawClient) -> None:
    for partition in range(2):
        write(client, b"a", b"b", tp=TopicPartition("t", partition))
        with PartitionReader(cluster.bootstrap_servers, "t", partition) as reader:
            assert read(reader) == [b"a", b"b"]
            assert (reader.reads_files, reader.position) == (True, 2)
            assert reader.read_records() == []


def test_closing_waits_for_no_response(
    cluster: RunningCluster, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, b"a")
    reader = PartitionReader(cluster.bootstrap_servers, "t", 0)
    assert read(reader) == [b"a"]
    assert reader.reads_files
    monkeypatch.setattr(unix, "receive", lambda *_, **__: pytest.fail("the broker is asked"))
    reader.close()


@pytest.mark.parametrize("mapped", [True, False])
def test_batches_without_records_are_passed_over(cluster: RunningCluster, client: RawClient, mapped: bool) -> None:
    """The marker of a transaction is a batch; compaction leaves others."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    producer.commit_transaction()
    write(client, b"b")
    with PartitionReader(cluster.bootstrap_servers, "t", 0, mapped=mapped) as reader:
        for value in (b"a", b"b"):
            assert [record.value for record in reader.read_records(max_bytes=1, max_wait_ms=WAIT_MS)] == [value]
        assert reader.reads_files is mapped
        reader.seek(1)
        [rows] = reader.read_arrow(["value"], max_bytes=1, max_wait_ms=WAIT_MS)
        assert rows.to_pylist() == [{"value": b"b"}]


def test_without_a_local_endpoint_it_fetches_over_tcp(
    cluster: RunningCluster, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix, "runtime_dirs", lambda: ())
    write(client, b"a", b"b")
    with PartitionReader(cluster.bootstrap_servers, "t", 0) as reader:
        assert read(reader) == [b"a", b"b"]
        assert (reader.reads_files, reader.position) == (False, 2)
        assert [batch.num_rows for batch in reader.read_arrow(["value"])] == []
        write(client, b"c")
        (batch,) = reader.read_arrow(["value", "offset"], max_wait_ms=WAIT_MS)
        assert batch.to_pylist() == [{"value": b"c", "offset": 2}]


def test_from_files_to_tcp_and_back(
    cluster: RunningCluster, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, b"a")
    with PartitionReader(cluster.bootstrap_servers, "t", 0) as reader:
        assert read(reader) == [b"a"]
        assert reader.reads_files
        with monkeypatch.context() as gone:
            for path in list((unix.runtime_dirs()[0] / cluster.cluster_id).iterdir()):
                path.rename(path.with_suffix(".away"))
            assert reader._files is not None
            reader._files[0].disconnect()  # as if the broker had closed the connection
            gone.setattr(partition_reader, "FILES_RETRY_SECONDS", 3600.0)
            write(client, b"b")
            found = reader.read_records(max_wait_ms=100) or reader.read_records(max_wait_ms=WAIT_MS)
            assert [record.value for record in found] == [b"b"]
            assert not reader.reads_files
            for path in list((unix.runtime_dirs()[0] / cluster.cluster_id).iterdir()):
                path.rename(path.with_suffix(".sock"))
        reader._files_from = 0.0
        write(client, b"c")
        assert read(reader) == [b"c"]
        assert reader.reads_files


@pytest.mark.parametrize("mapped", [True, False])
def test_a_topic_that_is_created_again(cluster: RunningCluster, client: RawClient, mapped: bool) -> None:
    write(client, b"a")
    with PartitionReader(cluster.bootstrap_servers, "t", 0, mapped=mapped) as reader:
        assert read(reader) == [b"a"]
        delete_topic(client, "t")
        create_topic(client, "t", num_partitions=2, replication_factor=1, configs={})
        write(client, b"b", b"c")
        for _ in range(2):
            with pytest.raises(KafkaError) as refused:
                read(reader)
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_reader_that_a_quota_limits_continues_over_tcp(cluster: RunningCluster, client: RawClient) -> None:
    write(client, b"a")
    with PartitionReader(cluster.bootstrap_servers, "t", 0) as reader:
        assert read(reader) == [b"a"]
        assert reader.reads_files
        alter_quotas(client, {"user": "ANONYMOUS"}, {"consumer_byte_rate": 1_000_000})
        deadline = time.monotonic() + HANG_SECONDS
        while not all(broker.quotas for broker in cluster.brokers):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        write(client, b"b")
        assert read(reader) == [b"b"]
        assert not reader.reads_files
        reader._files_from = 0.0
        write(client, b"c")
        assert read(reader) == [b"c"]
        assert not reader.reads_files, "refused when it tried again"


@pytest.mark.parametrize("mapped", [True, False])
def test_unknown_topics_and_offsets_are_errors(cluster: RunningCluster, client: RawClient, mapped: bool) -> None:
    write(client, b"a")
    with PartitionReader(cluster.bootstrap_servers, "t", 0, offset=7, mapped=mapped) as reader:
        with pytest.raises(KafkaError) as refused:
            reader.read()
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        reader.seek(0)
        assert read(reader) == [b"a"]
    with PartitionReader(cluster.bootstrap_servers, "t", 0, offset="latest", mapped=mapped) as reader:
        assert reader.position == 1


@pytest.mark.parametrize("mapped", [True, False])
def test_a_chunk_that_was_not_accepted_is_returned_again(
    cluster: RunningCluster, client: RawClient, mapped: bool
) -> None:
    write(client, b"a")
    with PartitionReader(cluster.bootstrap_servers, "t", 0, mapped=mapped) as reader:
        first, again = reader.read(max_wait_ms=WAIT_MS), reader.read(max_wait_ms=WAIT_MS)
        assert first is not None
        assert again is not None
        assert (first.start, again.start, reader.position) == (0, 0, 0)
        assert reader.accept(again)
        assert reader.position == 1


@pytest.fixture
def malformed(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """t-0 holds a batch of two records that an earlier version has accepted, between two sound ones."""
    write(client, b"before")
    with monkeypatch.context() as without_scan:
        without_scan.setattr(
            record_set, "_check_records", lambda batch, header, *_: record_set.CheckedRecordSet(batch, [(0, header)])
        )
        client.produce(TP, bytearray(raw_batch(raw_record(0) + b"garbage", 2)))
    write(client, b"behind")


@pytest.mark.usefixtures("malformed")
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "fetched"])
class TestMalformedBatch:
    def test_records_before_it_are_read_then_an_error_names_its_offsets(
        self, cluster: RunningCluster, mapped: bool
    ) -> None:
        with PartitionReader(cluster.bootstrap_servers, "t", 0, mapped=mapped) as reader:
            assert read(reader) == [b"before"]
            with pytest.raises(MalformedBatch, match="the batch of offsets 1 to 2 is malformed"):
                read(reader)
            with pytest.raises(MalformedBatch) as caught:
                read(reader)
            reader.seek(caught.value.next_offset)
            assert (read(reader), reader.position) == ([b"behind"], 4)

    def test_it_is_skipped_on_request(
        self, cluster: RunningCluster, mapped: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        with PartitionReader(cluster.bootstrap_servers, "t", 0, mapped=mapped, skip_malformed=True) as reader:
            assert (read(reader), reader.position) == ([b"before", b"behind"], 4)
        assert "malformed batch skipped" in caplog.messages

    def test_columns_are_read_likewise(self, cluster: RunningCluster, mapped: bool) -> None:
        with PartitionReader(cluster.bootstrap_servers, "t", 0, mapped=mapped) as reader:
            (batch,) = reader.read_arrow(["value"], max_wait_ms=WAIT_MS)
            assert batch.column(0).to_pylist() == [b"before"]
            with pytest.raises(MalformedBatch) as caught:
                reader.read_arrow(["value"], max_wait_ms=WAIT_MS)
            reader.seek(caught.value.next_offset)
            (batch,) = reader.read_arrow(["value"], max_wait_ms=WAIT_MS)
            assert batch.column(0).to_pylist() == [b"behind"]
