"""`raylog dump-log` prints the batches of a .log file, and reports where it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.cli.main import main
from raylog.protocol.records.batch import CRC_AT
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec

FIRST = build_batch(
    [NewRecord(b"k", b"value", 1000, (("h", b"1"),)), NewRecord(None, b"\xff\x00", 2000)], base_offset=5, leader_epoch=3
)
SECOND = build_batch(
    [NewRecord(b"\x1b", None, 3000)],
    base_offset=9,
    codec=Codec.ZSTD,
    producer_id=70,
    producer_epoch=1,
    base_sequence=12,
    transactional=True,
)
NAME = "00000000000000000005.log"


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(FIRST + SECOND)
    return path


def test_batches_are_printed_as_by_kafka(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", str(log_file)]) == 0
    title, start, first, second = capsys.readouterr().out.splitlines()
    assert (title, start) == (f"Dumping {log_file}", "Log starting offset: 5")
    crc = int.from_bytes(FIRST[CRC_AT : CRC_AT + 4])
    assert first == (
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1"
        " partitionLeaderEpoch: 3 isTransactional: false isControl: false position: 0 CreateTime: 2000"
        f" size: {len(FIRST)} magic: 2 compresscodec: none crc: {crc} isvalid: true"
    )
    assert "baseOffset: 9 lastOffset: 9 count: 1 baseSequence: 12 lastSequence: 12 producerId: 70" in second
    assert f"isTransactional: true isControl: false position: {len(FIRST)} CreateTime: 3000" in second
    assert "compresscodec: zstd" in second


def test_records_are_printed_without_control_characters(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", "--records", str(log_file)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")] == [
        '| offset: 5 CreateTime: 1000 keySize: 1 valueSize: 5 sequence: -1 headerKeys: ["h"] key: "k" payload: "value"',
        "| offset: 6 CreateTime: 2000 keySize: -1 valueSize: 2 sequence: -1 headerKeys: [] key: null payload: 0xff00",
        '| offset: 9 CreateTime: 3000 keySize: 1 valueSize: -1 sequence: 12 headerKeys: [] key: "\\x1b" payload: null',
    ]


def test_verify_prints_only_its_result(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", "--verify", str(log_file)]) == 0
    assert capsys.readouterr().out == f"{log_file}: 2 batch(es), 3 record(s), next offset 10, no damage\n"


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("content", "position", "what"),
    [
        (FIRST + SECOND[:-1], len(FIRST), f"a batch of {len(SECOND)} bytes is truncated after {len(SECOND) - 1}"),
        (FIRST + SECOND[:40], len(FIRST), "40 bytes are too few for a batch header"),
        (FIRST + flip(bytes(SECOND), len(SECOND) - 1), len(FIRST), "the batch at offset 9 fails its checksum"),
        (flip(bytes(FIRST), 30) + SECOND, 0, "the batch at offset 5 fails its checksum"),
        (FIRST + FIRST, len(FIRST), "the batch begins at offset 5, before the end of the previous one"),
        (b"\x00" * 200, 0, "message format 0"),
    ],
)
def test_damage_is_reported_with_file_and_position(
    log_file: Path, capsys: pytest.CaptureFixture[str], content: bytes, position: int, what: str
) -> None:
    log_file.write_bytes(content)
    assert main(["dump-log", str(log_file)]) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"raylog: CORRUPT_MESSAGE: {log_file}: at position {position}: {what}")
    assert err.count("\n") == 1
    assert out.count("isvalid: true") == (1 if position else 0), "the good batches before it are printed"


def test_an_unreadable_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", str(tmp_path / "absent.log")]) == 1
    assert capsys.readouterr().err == f"raylog: {tmp_path}/absent.log: No such file or directory\n"
