"""Files of every kind written by Apache Kafka are read as by Kafka, and written again byte for byte.

The files are made by `python -m tests.kafka.golden`; `told.json` beside them is Kafka's own word on them.
"""

from __future__ import annotations

import json
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.checkpoint import (
    MetaProperties,
    decode_clean_shutdown,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_offsets,
    encode_partition_metadata,
    encode_uuid,
)
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.log import Log
from raylog.logstore.offset_index import OffsetIndex
from raylog.logstore.producer_state import ProducerState
from raylog.logstore.settings import LogSettings
from raylog.logstore.time_index import TimeIndex
from raylog.logstore.transaction_index import decode as decode_transactions
from raylog.protocol.records.batch import BatchHeader, crc_is_valid, split_batches
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_batches, read_records
from tests.logstore.batches import NOW
from tests.support.sim_disk import SimDisk

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "kafka-files"
TOLD: dict[str, Any] = json.loads((GOLDEN / "told.json").read_text())
TOPICS = ("codecs", "deleted", "transactions")
INTERVAL_BYTES = {"codecs-0": 200}
"""index.interval.bytes where the topic has another than Kafka's default."""
WRITTEN_BY_TWO_RUNS = "codecs-0/00000000000000000048.log"
"""After a start the bytes between index entries are counted from zero."""
PRODUCER_FIELDS = {
    "producerEpoch": "producer_epoch",
    "coordinatorEpoch": "coordinator_epoch",
    "lastSequence": "last_sequence",
}
BATCH_FIELDS = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "record_count",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "CreateTime": "max_timestamp",
    "size": "size_bytes",
    "magic": "magic",
    "crc": "crc",
}
KINDS = (".index", ".log", ".snapshot", ".timeindex", ".txnindex")


def golden(suffix: str) -> list[Any]:
    paths = sorted(GOLDEN.glob(f"*-0/*{suffix}"))
    assert paths
    return [pytest.param(path, id=str(path.relative_to(GOLDEN))) for path in paths]


def told(path: Path) -> list[dict[str, str]]:
    """What Kafka's tool printed about each batch or entry of the file."""
    lines: list[str] = TOLD["dumped"][str(path.relative_to(GOLDEN))]
    lines = [re.sub(r"OptionalLong\.empty|OptionalLong\[(\d+)\]", lambda m: m[1] or "-1", line) for line in lines]
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines if not line.startswith("Log starting offset")]


def batches(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(split_batches(path.read_bytes()))


def test_files_of_every_kind_exist() -> None:
    found = {path.suffix for path in GOLDEN.glob("*-0/*")}
    assert found >= set(KINDS)
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()) < 300_000


@pytest.mark.parametrize("path", golden(".log"))
def test_batch_headers(path: Path) -> None:
    data = path.read_bytes()
    found = batches(path)
    lines = told(path)
    assert len(found) == len(lines) > 0
    for (position, header), line in zip(found, lines, strict=True):
        assert {name: int(line[name]) for name in BATCH_FIELDS} == {
            name: getattr(header, field) for name, field in BATCH_FIELDS.items()
        }
        assert int(line["position"]) == position
        assert line["compresscodec"] == header.codec.name.lower()
        assert (line["isTransactional"] == "true", line["isControl"] == "true") == (
            header.is_transactional,
            header.is_control,
        )
        assert crc_is_valid(data, position, header)


@pytest.mark.parametrize("topic", TOPICS)
def test_records_are_those_that_a_consumer_saw(topic: str) -> None:
    found: list[list[Any]] = [
        [
            record.offset,
            *(None if part is None else part.decode() for part in (record.key, record.value)),
            record.timestamp_ms,
            [[name, None if value is None else value.decode()] for name, value in record.headers],
        ]
        for path in sorted(GOLDEN.glob(f"{topic}-0/*.log"))
        for record in read_batches(path.read_bytes())
    ]
    start = decode_offsets((GOLDEN / "log-start-offset-checkpoint").read_bytes()).get(TopicPartition(topic, 0), 0)
    assert [row for row in found if row[0] >= start] == TOLD["rows"][topic]


def test_uncompressed_batches_are_built_byte_for_byte() -> None:
    built = 0
    for path in sorted(GOLDEN.glob("*-0/*.log")):
        data = path.read_bytes()
        for position, header in split_batches(data):
            if header.codec is not Codec.NONE:
                continue
            records = read_records(data, position, header)
            again = build_batch(
                [NewRecord(record.key, record.value, record.timestamp_ms, record.headers) for record in records],
                base_offset=header.base_offset,
                leader_epoch=header.partition_leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
                control=header.is_control,
            )
            assert again == data[position : position + header.size_bytes]
            built += 1
    assert built > 10


def test_markers_have_the_result_of_their_transaction() -> None:
    """Key: version 0 and type 0 (abort) or 1 (commit), 16 bits each. Value: version 0 and the coordinator's epoch."""
    ends = []
    for path in sorted(GOLDEN.glob("transactions-0/*.log")):
        data = path.read_bytes()
        for position, header in split_batches(data):
            if header.is_control:
                (record,) = read_records(data, position, header)
                assert record.key is not None
                assert record.value is not None
                ends.append(
                    (header.base_offset, *struct.unpack(">hh", record.key), *struct.unpack(">hi", record.value))
                )
    assert ends == [(3, 0, 1, 0, 0), (7, 0, 0, 0, 0)]


@pytest.mark.parametrize("path", golden(".index"))
def test_offset_indexes(path: Path) -> None:
    data = path.read_bytes()
    log = path.with_suffix(".log")
    index = OffsetIndex.decode(data, log_size=log.stat().st_size)
    assert index.encode_from(0) == data
    base = int(path.stem)
    entries = [index.entry_before(int(line["offset"]) - base) for line in told(path)]
    assert [(base + offset, position) for offset, position in entries] == [
        (int(line["offset"]), int(line["position"])) for line in told(path)
    ]
    assert len(index) == len(entries)


@pytest.mark.parametrize("path", golden(".timeindex"))
def test_time_indexes(path: Path) -> None:
    data = path.read_bytes()
    index = TimeIndex.decode(data)
    assert index.encode_from(0) == data
    lines = told(path)
    assert len(index) == len(lines) > 0
    assert index.last is not None
    assert (index.last[0], int(path.stem) + index.last[1]) == (int(lines[-1]["timestamp"]), int(lines[-1]["offset"]))


@pytest.mark.parametrize("path", golden(".snapshot"))
def test_producer_snapshots(path: Path) -> None:
    data = path.read_bytes()
    state = ProducerState.decode_snapshot(data, now_ms=0)
    assert state.encode_snapshot() == data
    lines = told(path)
    assert list(state.producers()) == [int(line["producerId"]) for line in lines]
    for line, entry in zip(lines, state.producers().values(), strict=True):
        assert {name: int(line[name]) for name in PRODUCER_FIELDS} == {
            name: getattr(entry, field) for name, field in PRODUCER_FIELDS.items()
        }
        assert state.open_transaction(int(line["producerId"])) == int(line["currentTxnFirstOffset"])
        batch = entry.batches[-1]
        assert (batch.last_offset, batch.offset_delta, batch.timestamp_ms) == tuple(
            int(line[name]) for name in ("lastOffset", "offsetDelta", "timestamp")
        )
        assert batch.first_sequence == int(line["firstSequence"])


def test_a_snapshot_with_an_open_transaction() -> None:
    state = ProducerState.decode_snapshot(
        (GOLDEN / "transactions-0/00000000000000000010.snapshot").read_bytes(), now_ms=0
    )
    assert [state.open_transaction(producer_id) for producer_id in state.producers()] == [-1, 9]
    assert state.first_unstable_offset(10) == 9


@pytest.mark.parametrize("path", golden(".txnindex"))
def test_transaction_indexes(path: Path) -> None:
    """Our log writes the same file: `test_a_raylog_log_writes_the_indexes_that_kafka_writes`."""
    found = list(decode_transactions(path.read_bytes()))
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    assert found == [tuple(int(line[name]) for name in names) for line in told(path)]
    assert [entry[1:] for entry in found] == [(4, 7, 8)]
    assert [line["version"] for line in told(path)] == ["0"]


@pytest.mark.parametrize(
    ("topic", "entries"), [("codecs", [(0, 0), (2, 60)]), ("deleted", [(0, 7), (2, 15)]), ("transactions", [(0, 0)])]
)
def test_leader_epochs(topic: str, entries: list[tuple[int, int]]) -> None:
    data = (GOLDEN / f"{topic}-0" / "leader-epoch-checkpoint").read_bytes()
    epochs = LeaderEpochs.decode(data)
    assert epochs.encode() == data
    assert epochs.entries == entries


@pytest.mark.parametrize("topic", TOPICS)
def test_partition_metadata(topic: str) -> None:
    data = (GOLDEN / f"{topic}-0" / "partition.metadata").read_bytes()
    topic_id = decode_partition_metadata(data)
    assert encode_uuid(topic_id) == TOLD["topic ids"][topic]
    assert encode_partition_metadata(topic_id) == data


def test_meta_properties() -> None:
    data = (GOLDEN / "meta.properties").read_bytes()
    meta = MetaProperties.decode(data)
    assert (meta.cluster_id, meta.node_id) == (TOLD["cluster.id"], 1)
    assert said(meta.encode()) == said(data), "Kafka writes the lines in any order, below the date"


def said(properties: bytes) -> set[bytes]:
    return {line for line in properties.splitlines() if not line.startswith(b"#")}


@pytest.mark.parametrize(
    ("name", "offsets"),
    [
        ("recovery-point", {"codecs": 120, "deleted": 15, "transactions": 10}),
        ("replication", {"codecs": 120, "deleted": 15, "transactions": 10}),
        ("log-start", {"deleted": 7}),
    ],
)
def test_offset_checkpoints(name: str, offsets: dict[str, int]) -> None:
    data = (GOLDEN / f"{name}-offset-checkpoint").read_bytes()
    decoded = decode_offsets(data)
    assert {tp.topic: offset for tp, offset in decoded.items() if tp.topic in TOPICS} == offsets
    written = encode_offsets(decoded)
    assert len(written) == len(data)
    assert sorted(written.splitlines()) == sorted(data.splitlines()), "Kafka writes the lines in any order"


def test_clean_shutdown_marker() -> None:
    data = (GOLDEN / ".kafka_cleanshutdown").read_bytes()
    epoch = decode_clean_shutdown(data)
    assert epoch == json.loads(data)["brokerEpoch"] > 0
    assert encode_clean_shutdown(epoch) == data


@pytest.mark.parametrize("path", [each for each in golden(".log") if each.id != WRITTEN_BY_TWO_RUNS])
def test_a_raylog_log_writes_the_indexes_that_kafka_writes(path: Path) -> None:
    """The same batches, one append for each: the same entries."""
    disk = SimDisk(random.Random(0))
    disk.mkdir("/p")
    settings = LogSettings(index_interval_bytes=INTERVAL_BYTES.get(path.parent.name, 4096), segment_ms=1 << 62)
    log = Log.open(
        disk,
        "/p",
        TopicPartition("t", 0),
        settings,
        now_ms=NOW,
        recovery_point=Offset(0),
        clean=False,
        log_start_offset=Offset(int(path.stem)),
    )
    data = path.read_bytes()
    for position, header in split_batches(data):
        log.append_as_follower(data[position : position + header.size_bytes], now_ms=NOW)
    assert log.leader_epochs.latest in (LeaderEpoch(0), LeaderEpoch(2))
    log.close()
    assert disk.exists(f"/p/{path.stem}.txnindex") == path.with_suffix(".txnindex").exists()
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        if path.with_suffix(suffix).exists():
            assert disk.read_file(f"/p/{path.stem}{suffix}") == path.with_suffix(suffix).read_bytes(), suffix
