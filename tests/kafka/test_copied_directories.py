"""Partitions are copied from raylog to Apache Kafka and back, by export-dir and import-dir, without any change."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from raylog.actors.data_dir import make_data_dir
from raylog.cli.main import main
from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.checkpoint import PARTITION_METADATA_FILE
from raylog.logstore.disk import RealDisk
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.batch import split_batches
from tests.kafka.history import (
    COMPACTED,
    NOW,
    Row,
    Server,
    consume,
    create_topic,
    delete_records,
    end_transaction,
    flush,
    producing,
    write_codecs,
    write_compacted,
    write_transactions,
)
from tests.kafka.test_dump_log_segments import BATCHES, SETTINGS, fill
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.kafka_peer import KafkaPeer, kafka_peer

pytestmark = pytest.mark.kafka

PARTITIONS = 3


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[KafkaPeer]:
    with kafka_peer(tmp_path / "kafka") as made:
        yield made
    shutil.rmtree(tmp_path / "kafka")


@contextmanager
def raylog(
    path: Path, *, topic: str = "", partitions: int = PARTITIONS, config: Mapping[str, int] = MappingProxyType({})
) -> Iterator[RunningCluster]:
    """Two brokers on the data directory `path`, as `raylog start` makes one; with a new topic, if one is named."""
    make_data_dir(str(path), name="carried", brokers=2)
    with cluster_thread({"log.retention.ms": -1, **config}, path, brokers=2) as cluster:
        if topic:
            create_topic(cluster, topic, partitions=partitions)
        yield cluster


def carry(command: str, data_dir: Path, peer: KafkaPeer, *options: str) -> None:
    assert main([command, "--data-dir", str(data_dir), *options, str(peer.log_dir)]) == 0


def everything(server: Server, topic: str) -> list[list[Row]]:
    return [consume(server, topic, partition=partition) for partition in range(PARTITIONS)]


def append(server: Server, topic: str, value: bytes, *, partition: int = 0) -> Row:
    """A record as it is to be read back, but for its offset."""
    with producing(server) as producer:
        producer.produce(topic, partition=partition, key=b"k", value=value, timestamp=NOW)
        flush(producer)
    return Row(-1, b"k", value, NOW, ())


def epochs_in(log: Path) -> set[int]:
    """Leader epochs in the batch headers."""
    return {header.partition_leader_epoch for _, header in split_batches(log.read_bytes())}


def with_appended(rows: list[Row], row: Row) -> list[Row]:
    return [*rows, row._replace(offset=rows[-1].offset + 1)]


def test_kafka_serves_records_written_by_raylog_and_returns_them(peer: KafkaPeer, tmp_path: Path) -> None:
    ours, again = tmp_path / "ours", tmp_path / "again"
    with raylog(ours, topic="codecs", config={"log.segment.bytes": 1500}) as cluster:
        for partition in range(PARTITIONS):
            write_codecs(cluster, partition=partition)
        written = everything(cluster, "codecs")
        assert len(list(cluster.partition_path("codecs", 0).glob("*.log"))) > 3
    peer.start()
    create_topic(peer, "codecs", partitions=PARTITIONS)
    for _ in range(2):  # each start raises the leader epoch
        peer.stop()
        peer.start()
    peer.stop()
    carry("export-dir", ours, peer)

    peer.start()
    assert everything(peer, "codecs") == written
    written[1] = with_appended(written[1], append(peer, "codecs", b"by Kafka", partition=1))
    assert everything(peer, "codecs") == written
    peer.stop()
    epochs = LeaderEpochs.decode((peer.partition_path("codecs", 1) / "leader-epoch-checkpoint").read_bytes())
    assert epochs.latest > 2, "higher than any epoch that the new cluster has"
    assert epochs.latest in epochs_in(max(peer.partition_path("codecs", 1).glob("*.log")))

    with raylog(again, topic="codecs"):
        pass
    carry("import-dir", again, peer, "--topic", "codecs")
    assert {epoch for log in again.glob("broker-*/codecs-*/*.log") for epoch in epochs_in(log)} == {0}
    with raylog(again) as cluster:
        assert everything(cluster, "codecs") == written
        written[1] = with_appended(written[1], append(cluster, "codecs", b"by raylog", partition=1))
        assert everything(cluster, "codecs") == written
    with raylog(again) as cluster:
        assert everything(cluster, "codecs") == written
    peer.kill()


def test_raylog_serves_records_written_by_kafka(peer: KafkaPeer, tmp_path: Path) -> None:
    """Segments, deleted records, compaction, ended transactions; one that is open is refused. Then all goes back."""
    names = ("codecs", "compacted", "transactions")
    peer.start()
    for name in names:
        create_topic(peer, name, config=COMPACTED if name == "compacted" else {})
    write_codecs(peer)
    delete_records(peer, "codecs", 30)
    write_compacted(peer)
    write_transactions(peer)
    peer.stop()
    ours = tmp_path / "ours"
    for name in names:
        with raylog(ours, topic=name, partitions=1):
            pass
    assert main(["import-dir", "--data-dir", str(ours), str(peer.log_dir)]) == 1

    peer.start()
    end_transaction(peer)
    seen = {name: consume(peer, name) for name in names}
    committed = consume(peer, "transactions", isolation_level="read_committed")
    assert 0 < len(committed) < len(seen["transactions"])
    peer.stop()
    carry("import-dir", ours, peer)
    with raylog(ours) as cluster:
        for name in names:
            assert consume(cluster, name) == seen[name]
            appended = append(cluster, name, b"by raylog")
            assert consume(cluster, name)[:-1] == seen[name]
            assert consume(cluster, name)[-1]._replace(offset=-1) == appended
            seen[name] = consume(cluster, name)
        shown = consume(cluster, "transactions", isolation_level="read_committed")
        assert shown == [*committed, seen["transactions"][-1]]
    assert seen["codecs"][0].offset == 30

    carry("export-dir", ours, peer, "--force")
    peer.start()
    for name in ("codecs", "transactions"):
        assert consume(peer, name) == seen[name]
    compacted = consume(peer, "compacted")  # Kafka's cleaner goes on at once
    assert set(compacted) <= set(seen["compacted"])
    assert {row.key: row for row in compacted} == {row.key: row for row in seen["compacted"]}
    assert consume(peer, "transactions", isolation_level="read_committed") == [*committed, seen["transactions"][-1]]
    append(peer, "compacted", b"by Kafka")
    peer.stop()


def test_kafka_opens_the_files_of_a_raylog_log(peer: KafkaPeer, tmp_path: Path) -> None:
    """Without export-dir: indexes, snapshots and epochs are those that our log has written."""
    peer.start()
    create_topic(peer, "dumped")
    peer.stop()
    path = peer.partition_path("dumped")
    metadata = (path / PARTITION_METADATA_FILE).read_bytes()
    shutil.rmtree(path)
    log = Log.open(
        RealDisk(), str(path), TopicPartition("dumped", 0), SETTINGS, now_ms=NOW, recovery_point=Offset(0), clean=False
    )
    fill(log)
    log.close()
    (path / PARTITION_METADATA_FILE).write_bytes(metadata)
    before = {file.name: file.read_bytes() for file in path.glob("*[xt]") if file.suffix in (".index", ".timeindex")}
    marked = len(peer.log())

    peer.start()
    rows = consume(peer, "dumped")
    assert [row.offset for row in rows] == list(range(BATCHES * 3))
    assert rows[0] == Row(0, b"key", b"0 " * 40, NOW, ())
    assert rows[-1] == Row(BATCHES * 3 - 1, b"tombstone", None, NOW + (BATCHES - 1) * 1000, ())
    complaints = [
        line
        for line in peer.log()[marked:].splitlines()
        if "dumped-0" in line and (" WARN " in line or " ERROR " in line)
    ]
    assert not complaints
    append(peer, "dumped", b"by Kafka")
    assert len(consume(peer, "dumped")) == len(rows) + 1
    peer.stop()
    closed = sorted(before)[:-1]
    assert {name: before[name] for name in closed if name[:20] != closed[-1][:20]}.items() <= {
        file.name: file.read_bytes() for file in path.iterdir()
    }.items()
    reopened = Log.open(
        RealDisk(),
        str(path),
        TopicPartition("dumped", 0),
        LogSettings(),
        now_ms=NOW,
        recovery_point=Offset(0),
        clean=True,
    )
    assert reopened.log_end_offset == BATCHES * 3 + 1
    assert reopened.leader_epochs.epoch_at(Offset(0)) == LeaderEpoch(0)
    reopened.abandon()
