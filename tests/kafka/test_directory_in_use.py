"""A log directory is used by one broker at a time, raylog's or Kafka's; Kafka cleans up after a crashed copy."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from raylog.core.errors import KafkaError
from raylog.logstore.disk import RealDisk
from raylog.logstore.stopped_log_dir import StoppedLogDir
from tests.kafka.history import consume, create_topic, flush, producing
from tests.kafka.kept import open_kafkas
from tests.support.kafka_peer import kafka_peer

pytestmark = pytest.mark.kafka

REMOVED_SECONDS = 60.0


def test_neither_opens_a_directory_in_use_by_the_other(tmp_path: Path) -> None:
    with kafka_peer(tmp_path / "kafka") as peer:
        peer.start()
        with pytest.raises(KafkaError, match=r"\.lock is locked"):
            open_kafkas(peer.log_dir, peer.cluster_id)
        with pytest.raises(KafkaError, match=r"\.lock is locked"):
            StoppedLogDir.open(RealDisk(), str(peer.log_dir))
        peer.stop()
        log_dir = open_kafkas(peer.log_dir, peer.cluster_id)
        with pytest.raises(AssertionError, match="does not start"):
            peer.start()
        assert "Failed to acquire lock on file .lock" in peer.log()
        log_dir.abandon()
        peer.start()
    shutil.rmtree(tmp_path / "kafka")


def test_kafka_deletes_an_unfinished_copy(tmp_path: Path) -> None:
    """Whole or half made: it lies under a name that Kafka gives to what it is about to delete."""
    with kafka_peer(tmp_path / "kafka", {"log.segment.delete.delay.ms": "100"}) as peer:
        peer.start()
        create_topic(peer, "t")
        with producing(peer) as producer:
            producer.produce("t", b"kept", partition=0)
            flush(producer)
        peer.stop()
        path = peer.partition_path("t")
        whole = shutil.copytree(path, path.with_name(f"t-0.{1:032x}-delete"))
        half = shutil.copytree(path, path.with_name(f"t-0.{2:032x}-delete"))
        for file in half.glob("*[txa]"):
            file.unlink()
        peer.start()
        deadline = time.monotonic() + REMOVED_SECONDS
        while whole.exists() or half.exists():
            assert time.monotonic() < deadline, "Kafka keeps it"
            time.sleep(0.1)
        assert [row.value for row in consume(peer, "t")] == [b"kept"]
    shutil.rmtree(tmp_path / "kafka")
