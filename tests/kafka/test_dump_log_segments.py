"""kafka-dump-log accepts every kind of file that raylog writes, with the same output as `raylog dump-log`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from raylog.cli.main import main
from raylog.core.ids import BrokerId, LeaderEpoch, TopicPartition
from raylog.logstore.disk import RealDisk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.markers import EndTransactionMarker, build_marker
from tests.kafka.history import NOW
from tests.support.kafka_peer import dump_log_segments

pytestmark = pytest.mark.kafka

BATCHES = 60
COMPLAINTS = re.compile(
    "mismatch|not found|invalid|corrupt|missing|could not|cannot|exception|out of order|isvalid: false", re.I
)
ONLY_KAFKAS = re.compile(r"deleteHorizonMs: OptionalLong.empty |lastTimestamp: \d+ ")
OPTIONAL = re.compile(r"OptionalLong\.empty|OptionalLong\[(\d+)\]")
SETTINGS = LogSettings(segment_bytes=3000, index_interval_bytes=200)


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a closed log: every codec, idempotent producers and others, three epochs, several segments."""
    root = tmp_path_factory.mktemp("dumped") / "logs"
    log_dir = LogDir.open(
        RealDisk(),
        str(root),
        cluster_id="c",
        broker_id=BrokerId(0),
        settings_for=lambda topic: SETTINGS,
        now_ms=NOW,
        new_id=uuid4,
    )
    fill(log_dir.create_log(TopicPartition("dumped", 0), UUID(int=1), NOW))
    fill_with_transactions(log_dir.create_log(TopicPartition("transactions", 0), UUID(int=2), NOW))
    log_dir.close()
    return root / "dumped-0"


def fill(log: Log) -> None:
    for number in range(BATCHES):
        producer = number % 3 - 1
        batch = build_batch(
            [
                NewRecord(b"key", b"%d " % number * 40, NOW + number * 1000),
                NewRecord(None, b"x", NOW + number * 1000 + 7, (("header", b"1"), ("none", None))),
                NewRecord(b"tombstone", None, NOW + number * 1000),
            ],
            codec=Codec(number % len(Codec)),
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else number // 3 * 3,
        )
        log.append_as_leader(memoryview(batch), leader_epoch=LeaderEpoch(number // 20), now_ms=NOW)


def fill_with_transactions(log: Log) -> None:
    """Of two producers, which commit and abort, over several segments; one is left open."""
    for number in range(31):
        producer_id = number % 2
        data = build_batch(
            [NewRecord(None, b"x" * 300, NOW + number)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number // 2,
            transactional=True,
        )
        log.append_as_leader(memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW, from_client=False)
        if number % 3 == 2:
            marker = build_marker(
                EndTransactionMarker(number == 2, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW
            )
            log.append_as_leader(memoryview(marker), leader_epoch=LeaderEpoch(0), now_ms=NOW, from_client=False)


def files(partition: Path, suffix: str) -> list[Path]:
    found = sorted(partition.glob(f"*{suffix}"))
    assert len(found) > 1
    return found


def lines(text: str) -> list[str]:
    """The lines about the content, without titles and without lines that only Kafka prints."""
    told = [line for line in text.splitlines() if not line.startswith(("Dumping", "Log starting offset"))]
    return [OPTIONAL.sub(_number, ONLY_KAFKAS.sub("", line)).strip() for line in told]


def _number(optional: re.Match[str]) -> str:
    return optional[1] or "-1"


def ours(paths: Sequence[Path], capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    capsys.readouterr()
    assert main(["dump-log", *options, *map(str, paths)]) == 0
    return lines(capsys.readouterr().out)


def test_logs(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = files(partition, ".log")
    said = dump_log_segments(*paths, options=("--deep-iteration",))
    assert not COMPLAINTS.search(said), said
    batches = [line for line in lines(said) if line.startswith("baseOffset")]
    assert batches == ours(paths, capsys)
    assert len(batches) == BATCHES
    assert len([line for line in lines(said) if line.startswith("|")]) == BATCHES * 3


def test_indexes(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = files(partition, ".index")
    said = dump_log_segments(*paths)
    assert not COMPLAINTS.search(said), said
    assert lines(said) == ours(paths, capsys)
    assert len(lines(said)) > 10
    checked = dump_log_segments(*paths, options=("--index-sanity-check",))
    assert checked.count("passed sanity check") == len(paths), checked


def test_time_indexes(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = files(partition, ".timeindex")
    said = dump_log_segments(*paths)
    assert not COMPLAINTS.search(said), said
    assert lines(said) == ours(paths, capsys)
    checked = dump_log_segments(*paths, options=("--index-sanity-check",))
    assert checked.count("passed sanity check") == len(paths), checked


def test_producer_snapshots(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = files(partition, ".snapshot")
    said = dump_log_segments(*paths)
    assert not COMPLAINTS.search(said), said
    assert lines(said) == ours(paths, capsys)
    assert len(lines(said)) == 2 * len(paths)


def test_transactions(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in (".log", ".txnindex", ".snapshot"):
        paths = files(partition.parent / "transactions-0", suffix)
        said = dump_log_segments(*paths)
        assert not COMPLAINTS.search(said), said
        assert len(lines(said)) > 1
        assert lines(said) == ours(paths, capsys)
