"""The marker that ends a transaction in a partition: a control batch of one record (KIP-98).

Key: version (2 bytes), type (2 bytes: 0 abort, 1 commit). Value: version (2 bytes), coordinator epoch (4 bytes).
Source: Kafka documentation, "Control Batches"; EndTxnMarker.json.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.reader import Record, read_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class EndTransactionMarker(NamedTuple):
    """The outcome of the producer's open transaction, and the epoch of the coordinator that wrote the marker."""

    committed: bool
    coordinator_epoch: int


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in the control batch at `position`; None for another kind, or one that compaction has emptied.

    Raises CORRUPT_MESSAGE if it does not decode.
    """
    records = read_records(buffer, position, header)
    return marker_of(records[0]) if records else None


def marker_of(record: Record) -> EndTransactionMarker | None:
    """The marker in the record of a control batch; None for another kind. Raises CORRUPT_MESSAGE as `read_marker`."""
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error:
        what = f"the control record at offset {record.offset} is too short for a marker"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, what) from None
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch)


def build_marker(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """The control batch, at offset 0."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    return build_batch(
        [NewRecord(key, _VALUE.pack(_VERSION, marker.coordinator_epoch), timestamp_ms)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
