"""raylog opens directories of Apache Kafka after a kill and a clean shutdown, with the records that consumers saw."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raylog.core.ids import LeaderEpoch, TopicPartition
from raylog.logstore.log_dir import LogDir
from raylog.logstore.producer_state import ProducerState
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.kafka.history import NOW, TOPICS, Row, consume, delete_records, write_history
from tests.kafka.kept import committed_rows_of, open_kafkas, rows_of
from tests.support.kafka_peer import kafka_peer

pytestmark = pytest.mark.kafka


class Left(NamedTuple):
    """What one stop of Kafka has left."""

    clean: bool
    path: Path
    cluster_id: str
    seen: dict[str, list[Row]]
    """What a consumer saw at this stop: all records."""
    committed: dict[str, list[Row]]
    """The same under read_committed."""


@pytest.fixture(scope="module")
def stops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    root = tmp_path_factory.mktemp("stops")
    with kafka_peer(root / "kafka") as peer:

        def leave(name: str, seen: dict[str, list[Row]], committed: dict[str, list[Row]]) -> Left:
            return Left(
                name == "stopped",
                Path(shutil.copytree(peer.log_dir, root / name)),
                peer.cluster_id,
                seen,
                committed,
            )

        def look(isolation_level: str) -> dict[str, list[Row]]:
            return {topic: consume(peer, topic, isolation_level=isolation_level) for topic in TOPICS}

        peer.start()
        write_history(peer)
        peer.kill()
        killed = leave("killed", {}, {})
        peer.start()  # what it takes the killed directory for is what we must take it for
        killed.seen.update(look("read_uncommitted"))
        killed.committed.update(look("read_committed"))
        delete_records(peer, "deleted", 12)
        seen, committed = look("read_uncommitted"), look("read_committed")
        peer.stop()
        yield {"killed": killed, "stopped": leave("stopped", seen, committed)}
    shutil.rmtree(root)


@pytest.fixture(params=["killed", "stopped"])
def left(request: pytest.FixtureRequest, stops: dict[str, Left], tmp_path: Path) -> Left:
    found = stops[request.param]
    return found._replace(path=Path(shutil.copytree(found.path, tmp_path / "copy")))


@pytest.fixture
def opened(left: Left) -> Iterator[LogDir]:
    log_dir = open_kafkas(left.path, left.cluster_id)
    yield log_dir
    log_dir.abandon()


@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_is_as_a_consumer_saw_it(left: Left, opened: LogDir, topic: str) -> None:
    rows = rows_of(opened.logs[TopicPartition(topic, 0)])
    assert rows == left.seen[topic]
    assert rows


@pytest.mark.parametrize("topic", TOPICS)
def test_read_committed_returns_what_kafka_returned(left: Left, opened: LogDir, topic: str) -> None:
    log = opened.logs[TopicPartition(topic, 0)]
    assert committed_rows_of(log) == left.committed[topic]
    if topic == "transactions":
        assert log.last_stable_offset(log.log_end_offset) == 9 < log.log_end_offset
        assert [
            transaction[1:] for transaction in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        ] == [(4, 7, 8)]


def test_the_directory_is_as_after_its_last_stop(left: Left, opened: LogDir) -> None:
    assert opened.was_clean == left.clean
    assert {tp.topic for tp in opened.logs} >= set(TOPICS)
    deleted = opened.logs[TopicPartition("deleted", 0)]
    assert deleted.log_start_offset == left.seen["deleted"][0].offset


def test_offsets_by_timestamp_are_those_of_kafka(left: Left, opened: LogDir) -> None:
    log = opened.logs[TopicPartition("codecs", 0)]
    for row in left.seen["codecs"]:
        found = log.offset_for_timestamp(row.timestamp_ms, upto=log.log_end_offset)
        first = next(other for other in left.seen["codecs"] if other.timestamp_ms >= row.timestamp_ms)
        assert found is not None
        assert found[:2] == (first.offset, first.timestamp_ms)


@pytest.mark.parametrize("topic", ["codecs", "transactions"])
def test_producer_state_is_that_of_kafkas_snapshot(
    stops: dict[str, Left], left: Left, opened: LogDir, topic: str
) -> None:
    """After a kill they come from the batches; Kafka's snapshot is that of its later, clean stop.

    Kafka has expired producers whose records have old timestamps; raylog expires them by their last request.
    """
    snapshots = sorted((stops["stopped"].path / f"{topic}-0").glob("*.snapshot"))
    theirs = ProducerState.decode_snapshot(snapshots[-1].read_bytes(), now_ms=NOW).producers()
    ours = opened.logs[TopicPartition(topic, 0)].producers.producers()
    assert ours.keys() >= theirs.keys()
    assert len(ours) == (len(theirs) if left.clean else 2)
    for producer_id, entry in theirs.items():
        assert ours[producer_id].producer_epoch == entry.producer_epoch
        assert ours[producer_id].last_sequence == entry.last_sequence


@pytest.mark.parametrize("topic", TOPICS)
def test_new_records_are_appended_after_kafkas(left: Left, opened: LogDir, topic: str) -> None:
    """Under a leader epoch that is not older, as the next leader of the same cluster has one."""
    log = opened.logs[TopicPartition(topic, 0)]
    end = log.log_end_offset
    epoch = LeaderEpoch(log.leader_epochs.latest + 1)
    batch = build_batch([NewRecord(b"k", b"appended", NOW)])
    assert log.append_as_leader(memoryview(batch), leader_epoch=epoch, now_ms=NOW).first_offset == end
    opened.close()
    again = open_kafkas(left.path, left.cluster_id)
    try:
        log = again.logs[TopicPartition(topic, 0)]
        assert rows_of(log) == [*left.seen[topic], Row(end, b"k", b"appended", NOW, ())]
        assert log.leader_epochs.latest == epoch
    finally:
        again.abandon()
