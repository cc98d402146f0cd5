"""raylog opens what a real Kafka has written, after a kill and after a clean stop, and reads what a consumer saw."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.log_dir import LogDir
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.kafka.history import NOW, TOPICS, Row, consume, delete_records, write_history
from tests.kafka.kept import open_kafkas, rows_of
from tests.support.kafka_peer import kafka_peer

pytestmark = pytest.mark.kafka


class Left(NamedTuple):
    """What one stop of Kafka has left."""

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
def test_every_record_is_there_as_a_consumer_saw_it(left: Left, opened: LogDir, topic: str) -> None:
    rows = rows_of(opened.logs[TopicPartition(topic, 0)])
    assert rows == left.seen[topic]
    assert rows
