"""Builds record batches from records, for producers, coordinators and tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from raylog.core.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from raylog.protocol.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    write_crc,
)
from raylog.protocol.records.compression import Codec, compress

_HEADER = struct.Struct(">qiibIhiqqqhii")
_NULL_LENGTH = b"\x01"
"""-1 as a zigzag varint: the length of a null key, value or header value."""


class NewRecord(NamedTuple):
    """A record without an offset. Null keys and values are None, which differs from empty ones."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch with its checksum; offsets increase by one from `base_offset`. Raises ValueError without records."""
    if not records:
        raise ValueError("a batch must contain at least one record")
    base_timestamp = records[0].timestamp_ms
    body = bytearray()
    for offset_delta, record in enumerate(records):
        encoded = _encode_record(record, record.timestamp_ms - base_timestamp, offset_delta)
        body += varint(len(encoded))
        body += encoded
    payload = body if codec is Codec.NONE else compress(codec, body)
    attributes = codec.value
    if timestamp_type:
        attributes |= LOG_APPEND_TIME_BIT
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    batch = bytearray(
        _HEADER.pack(
            base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(payload),
            leader_epoch,
            MAGIC,
            0,
            attributes,
            len(records) - 1,
            base_timestamp,
            max(record.timestamp_ms for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    batch += payload
    write_crc(batch, 0, len(batch))
    return batch


def _encode_record(record: NewRecord, timestamp_delta: int, offset_delta: int) -> bytearray:
    encoded = bytearray(1)  # attributes, unused
    encoded += varint(timestamp_delta)
    encoded += varint(offset_delta)
    for part in (record.key, record.value):
        if part is None:
            encoded += _NULL_LENGTH
        else:
            encoded += varint(len(part))
            encoded += part
    encoded += varint(len(record.headers))
    for name, value in record.headers:
        name_bytes = name.encode()
        encoded += varint(len(name_bytes))
        encoded += name_bytes
        if value is None:
            encoded += _NULL_LENGTH
        else:
            encoded += varint(len(value))
            encoded += value
    return encoded


def varint(number: int) -> bytes:
    """`number` as a zigzag varint: small magnitudes in few bytes, seven bits in each, low ones first."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    if zigzag < 0x80:
        return bytes((zigzag,))
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)
