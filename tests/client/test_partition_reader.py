"""A partition reader uses the fastest available transport, and changes it without missing a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.client import partition_reader
from raylog.client.admin import create_topic
from raylog.client.cluster_client import ClusterClient
from raylog.client.partition_reader import PartitionReader
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.transport import unix
from tests.support.cluster_thread import RunningCluster, cluster_thread

TP = TopicPartition("t", 0)
WAIT_MS = 20_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_thread({}, tmp_path / "log", brokers=2) as running:
        yield running


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[ClusterClient]:
    with ClusterClient(cluster.bootstrap_servers, client_id="writer") as client:
        create_topic(client, "t", num_partitions=2, replication_factor=1, configs={})
        yield client


def write(client: ClusterClient, *values: bytes, tp: TopicPartition = TP) -> None:
    client.produce(tp, build_batch([NewRecord(None, value, 1000) for value in values]))


def read(reader: PartitionReader) -> list[bytes | None]:
    return [record.value for record in reader.read_records(max_wait_ms=WAIT_MS)]


def test_files_on_the_leaders_node(cluster: RunningCluster, client: ClusterClient) -> None:
    for partition in range(2):
        write(client, b"a", b"b", tp=TopicPartition("t", partition))
        with PartitionReader(cluster.bootstrap_servers, "t", partition) as reader:
            assert read(reader) == [b"a", b"b"]
            assert (reader.reads_files, reader.position) == (True, 2)
            assert reader.read_records() == []


def test_without_a_local_endpoint_it_fetches_over_tcp(
    cluster: RunningCluster, client: ClusterClient, monkeypatch: pytest.MonkeyPatch
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
    cluster: RunningCluster, client: ClusterClient, monkeypatch: pytest.MonkeyPatch
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
def test_unknown_topics_and_offsets_are_errors(cluster: RunningCluster, client: ClusterClient, mapped: bool) -> None:
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
    cluster: RunningCluster, client: ClusterClient, mapped: bool
) -> None:
    write(client, b"a")
    with PartitionReader(cluster.bootstrap_servers, "t", 0, mapped=mapped) as reader:
        first, again = reader.read(max_wait_ms=WAIT_MS), reader.read(max_wait_ms=WAIT_MS)
        assert first is not None
        assert again is not None
        assert (first.start, again.start, reader.position) == (0, 0, 0)
        assert reader.accept(again)
        assert reader.position == 1
