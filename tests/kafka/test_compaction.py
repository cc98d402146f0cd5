"""raylog and Apache Kafka compact the same files to the same records, and each opens what the other has compacted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.checkpoint import CLEANER_OFFSET_FILE, decode_offsets
from raylog.logstore.disk import RealDisk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from tests.kafka.history import ANSWER_SECONDS, NOW, Row, consume, create_topic, flush, producing
from tests.kafka.kept import open_kafkas, rows_of
from tests.logstore.test_cleaning import BUFFERS, run_cleaning
from tests.support.hang import wait_until
from tests.support.kafka_peer import KafkaPeer, java, kafka_peer

pytestmark = pytest.mark.kafka
TOPIC = "table"
TP = TopicPartition(TOPIC, 0)
CLEANED_SECONDS = 60.0
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    with kafka_peer(tmp_path_factory.mktemp("compaction") / "kafka", SETTINGS) as peer:
        peer.start()
        create_topic(peer, TOPIC, config={"segment.bytes": str(1 << 20), "retention.ms": "-1"})
        write(peer)
        yield peer


def write(peer: KafkaPeer) -> None:
    """About 4 MB in several segments: values, tombstones, codecs, committed and aborted transactions."""
    noise = random.Random(1)

    def value() -> bytes | None:
        return None if noise.random() < 0.2 else noise.randbytes(noise.randrange(1500))

    for number in range(8):
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[number % 5]
        with producing(peer, **{"compression.type": codec, "linger.ms": 20, "batch.size": 20_000}) as producer:
            for _ in range(500):
                producer.produce(TOPIC, partition=0, key=b"%d" % noise.randrange(900), value=value(), timestamp=NOW)
        with producing(peer, **{"transactional.id": f"t{number % 2}", "linger.ms": 20}) as producer:
            producer.init_transactions(ANSWER_SECONDS)
            for end in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                for _ in range(40):
                    producer.produce(TOPIC, partition=0, key=b"%d" % noise.randrange(900), value=value(), timestamp=NOW)
                flush(producer)
                end(ANSWER_SECONDS)


def compact(peer: KafkaPeer) -> None:
    """Change the topic's cleanup policy, and clean as soon as there is anything to clean."""
    configs = "cleanup.policy=compact,min.cleanable.dirty.ratio=0.0001"
    command = ("--bootstrap-server", peer.bootstrap_servers, "--alter", "--topic", TOPIC, "--add-config", configs)
    java("kafka.admin.ConfigCommand", *command)


def cleaned_upto(peer: KafkaPeer) -> int:
    """As far as Kafka has written it; its first checkpoint is an empty file."""
    try:
        return decode_offsets((peer.log_dir / CLEANER_OFFSET_FILE).read_bytes()).get(TP, Offset(0))
    except ValueError:
        return 0


def ours(log_dir: LogDir) -> Log:
    log = log_dir.logs[TP]
    log.settings = replace(log.settings, is_compacted=True, segment_bytes=1 << 20)
    return log


def test_the_same_records_remain(peer: KafkaPeer, tmp_path: Path) -> None:
    peer.stop()
    copied = Path(shutil.copytree(peer.log_dir, tmp_path / "copy"))
    log_dir = open_kafkas(copied, peer.cluster_id)
    log = ours(log_dir)
    before = rows_of(log)
    assert log.segment_count > 3
    run_cleaning(log, RealDisk(), buffers=replace(BUFFERS, dedupe_bytes=1 << 20, io_bytes=1 << 16))
    rows = rows_of(log)
    assert len(rows) < len(before) / 2
    last_closed = log.cleaned_upto
    log_dir.close()

    peer.start()
    compact(peer)
    wait_until(lambda: cleaned_upto(peer) >= last_closed, lambda: "Kafka did not compact")
    assert cleaned_upto(peer) == last_closed
    assert difference(rows, consume(peer, TOPIC)) == []


def difference(one: list[Row], other: list[Row]) -> list[int]:
    return sorted({row.offset for row in one} ^ {row.offset for row in other}) or [
        mine.offset for mine, theirs in zip(one, other, strict=True) if mine != theirs
    ]


def test_kafka_opens_what_raylog_has_compacted_and_compacts_it_again(peer: KafkaPeer, tmp_path: Path) -> None:
    committed = consume(peer, TOPIC, isolation_level="read_committed")
    peer.stop()
    log_dir = open_kafkas(peer.log_dir, peer.cluster_id)
    log = ours(log_dir)
    table = {row.key: row.value for row in committed}
    before = rows_of(log)
    run_cleaning(log, RealDisk(), now_ms=NOW)
    kept = rows_of(log)
    assert set(kept) <= set(before)
    log_dir.close()
    peer.start()
    assert consume(peer, TOPIC) == kept
    with producing(peer) as producer:
        for number in range(700):
            producer.produce(TOPIC, partition=0, key=b"%d" % (number % 5), value=b"x" * 2000, timestamp=NOW)
    upto = cleaned_upto(peer)
    wait_until(lambda: cleaned_upto(peer) > upto, lambda: "Kafka did not compact again")
    after = {row.key: row.value for row in consume(peer, TOPIC, isolation_level="read_committed")}
    expected = table | {b"%d" % number: b"x" * 2000 for number in range(5)}
    assert {key: value for key, value in after.items() if value is not None} == {
        key: value for key, value in expected.items() if value is not None
    }
    assert "ERROR" not in peer.log()
