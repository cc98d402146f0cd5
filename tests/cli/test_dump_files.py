"""`raylog dump-log` prints every kind of file that a broker writes, and reports damage."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.cli.main import main
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import parse_header, patch_offset_and_epoch
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.logstore.batches import batch, marker
from tests.support.cluster_thread import cluster_thread
from tests.support.wire import produce

TOPIC = "dumped"
ROUNDS = 40


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that has written several segments and was stopped cleanly."""
    path = tmp_path_factory.mktemp("dumped")
    config = {"log.segment.bytes": 4000, "log.index.interval.bytes": 300}
    with cluster_thread(config, path) as cluster:
        produce(
            cluster,
            TopicPartition(TOPIC, 0),
            [
                build_batch(
                    [NewRecord(b"k", b"v" * 100, 1_700_000_000_000 + n)],
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=n,
                )
                for n in range(ROUNDS)
            ],
        )
    return path / "broker-0"


def files(stopped: Path) -> Iterator[Path]:
    yield from sorted(path for path in stopped.rglob("*") if path.is_file() and path.name != ".lock")


def test_every_file_of_a_stopped_broker_is_printed(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = set()
    for path in files(stopped):
        assert main(["dump-log", str(path)]) == 0, path
        assert main(["dump-log", "--verify", str(path)]) == 0, path
        out, err = capsys.readouterr()
        assert "no damage" in out
        assert err == ""
        seen.add(path.suffix or path.name)
    assert seen >= {".log", ".index", ".timeindex", ".snapshot", ".properties", ".metadata", "leader-epoch-checkpoint"}
    assert {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint", ".kafka_cleanshutdown"} <= seen


def test_the_output_is_that_of_kafka(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = stopped / f"{TOPIC}-0"
    last = sorted(partition.glob("*.snapshot"))[-1]
    for path, line in (
        (partition / "leader-epoch-checkpoint", "leaderEpoch: 0 startOffset: 0"),
        (stopped / "recovery-point-offset-checkpoint", f"{TOPIC}-0: {ROUNDS}"),
        (last, "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: -1"),
        (last, f"firstSequence: {ROUNDS - 1} lastSequence: {ROUNDS - 1} lastOffset: {ROUNDS - 1} offsetDelta: 0"),
    ):
        assert main(["dump-log", str(path)]) == 0
        assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("suffix", "change", "complaint"),
    [
        (".index", lambda data: data[:-3], "truncated"),
        (".index", lambda data: data[:8] + data[:8] + data[16:], "does not follow"),
        (".timeindex", lambda data: data[:-1], "truncated"),
        (".timeindex", lambda data: data[:12] + bytes(12) + data[24:], "does not follow"),
        (".snapshot", lambda data: data[:20] + b"\xff" + data[21:], "wrong checksum"),
        (".snapshot", lambda data: data[:5], "truncated"),
    ],
)
def test_damage_is_reported(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str, change: object, complaint: str
) -> None:
    assert callable(change)
    intact = max((path for path in files(stopped) if path.suffix == suffix), key=lambda path: path.stat().st_size)
    damaged = tmp_path / intact.name
    damaged.write_bytes(change(intact.read_bytes()))
    assert main(["dump-log", str(damaged)]) == 1
    err = capsys.readouterr().err
    assert complaint in err
    assert str(damaged) in err
    assert "at position" in err
    assert err.count("\n") == 1


def test_a_wrong_index_entry_is_reported(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = max((path for path in files(stopped) if path.suffix == ".index"), key=lambda path: path.stat().st_size)
    (tmp_path / index.with_suffix(".log").name).write_bytes(index.with_suffix(".log").read_bytes())
    data = bytearray(index.read_bytes())
    data[-1] ^= 1  # the position of the last entry
    astray = tmp_path / index.name
    astray.write_bytes(data)
    assert main(["dump-log", str(astray)]) == 0
    assert main(["dump-log", "--verify", str(astray)]) == 1
    assert "no batch begins at position" in capsys.readouterr().err


def transaction_index(*entries: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


def test_a_transaction_index_is_compared_with_the_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = batch(b"x", producer=(7, 0, 0), transactional=True)
    end = marker(7, committed=False)
    patch_offset_and_epoch(end, 0, parse_header(end), 1, 0)
    (tmp_path / f"{0:020d}.log").write_bytes(records + end)
    index = tmp_path / f"{0:020d}.txnindex"
    index.write_bytes(transaction_index((7, 0, 1, 2)))
    assert main(["dump-log", str(index)]) == 0
    line = "version: 0 producerId: 7 firstOffset: 0 lastOffset: 1 lastStableOffset: 2"
    assert line in capsys.readouterr().out
    assert main(["dump-log", "--verify", str(index)]) == 0
    for damaged, complaint in (
        (transaction_index((8, 0, 1, 2)), "not a marker of producer 8"),
        (transaction_index((7, 0, 0, 2)), "offset 0 is not a marker"),
        (transaction_index((7, 0, 1, 2), (7, 0, 1, 2)), "at position 34: last offset 1 does not follow 1"),
        (transaction_index((7, 0, 1, 2)) + b"xy", "at position 34: an entry of 34 bytes is truncated"),
    ):
        index.write_bytes(damaged)
        assert main(["dump-log", "--verify", str(index)]) == 1
        assert complaint in capsys.readouterr().err


def test_an_unknown_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = tmp_path / "notes.txt"
    strange.write_text("hello")
    assert main(["dump-log", str(strange)]) == 1
    assert "must be one of .log, .index" in capsys.readouterr().err
