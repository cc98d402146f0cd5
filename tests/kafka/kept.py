"""What a broker keeps on disk, read by our own log."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from raylog.core.ids import BrokerId
from raylog.logstore.disk import RealDisk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.reader import read_batches
from tests.kafka.history import NOW, Row
from tests.support.kafka_peer import NODE_ID

NEVER_MS = 1 << 62


def open_kafkas(path: Path, cluster_id: str) -> LogDir:
    """The log directory of a stopped Kafka, as one of ours."""
    return LogDir.open(
        RealDisk(),
        str(path),
        cluster_id=cluster_id,
        broker_id=BrokerId(NODE_ID),
        settings_for=lambda topic: LogSettings(segment_ms=NEVER_MS),
        now_ms=NOW,
        new_id=uuid4,
    )


def rows_of(log: Log) -> list[Row]:
    """Every record of the log, markers left out, as a consumer is to see them."""
    rows: list[Row] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        piece = log.read(at, max_bytes=1 << 20, upto=log.log_end_offset)
        rows += [
            Row(record.offset, record.key, record.value, record.timestamp_ms, record.headers)
            for record in read_batches(piece.records, from_offset=at)
        ]
        at = piece.next_offset
    return rows


def committed_rows_of(log: Log) -> list[Row]:
    """What read_committed shows of it: below the last stable offset, without the records of aborted transactions."""
    stable = log.last_stable_offset(log.log_end_offset)
    aborted = log.aborted_transactions(log.log_start_offset, stable)
    hidden: set[int] = set()
    at = log.log_start_offset
    while at < log.log_end_offset:
        piece = log.read(at, max_bytes=1 << 20, upto=log.log_end_offset)
        for _, header in split_batches(piece.records):
            for transaction in aborted:
                if header.is_transactional and header.producer_id == transaction.producer_id:
                    hidden |= set(range(header.base_offset, header.next_offset)) & set(range(*transaction[1:3]))
        at = piece.next_offset
    return [row for row in rows_of(log) if row.offset < stable and row.offset not in hidden]
