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
from raylog.protocol.records.record_encoding import append_record
from raylog.protocol.records.varints import NULL_LENGTH, varint

_HEADER = struct.Struct(">qiibIhiqqqhii")


class NewRecord(NamedTuple):
    """A record without an offset. Null keys and values are None, which differs from empty ones."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


class BatchBuilder:
    """A batch whose records are encoded as they come; offsets increase by one."""

    __slots__ = ("base_timestamp_ms", "body", "count", "max_timestamp_ms")

    def __init__(self, body: bytearray | None = None) -> None:
        """`body` is that of a batch which is not needed any more, shortened to the header."""
        self.body = bytearray(HEADER_SIZE) if body is None else body
        """Room for the header, and the encoded records."""
        self.count = 0
        self.base_timestamp_ms = 0
        self.max_timestamp_ms = 0

    @property
    def size_bytes(self) -> int:
        """Of the encoded records."""
        return len(self.body) - HEADER_SIZE

    def release(self) -> bytearray:
        """Give away the body with the encoded records; their number stays."""
        body, self.body = self.body, bytearray(HEADER_SIZE)
        return body

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        if not self.count:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        delta = timestamp_ms - self.base_timestamp_ms
        append_record(self.body, delta, self.count, key, value, encode_headers(headers) if headers else None)
        self.count += 1

    def build(
        self,
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
        """The batch with its checksum. Raises ValueError without records.

        Without compression it is the builder's own memory: valid until the next `append` or `build`.
        """
        if not self.count:
            raise ValueError("a batch must contain at least one record")
        batch = self.body
        if codec is not Codec.NONE:
            with memoryview(self.body) as body:
                batch = bytearray(HEADER_SIZE) + compress(codec, body[HEADER_SIZE:])
        attributes = codec.value
        if timestamp_type:
            attributes |= LOG_APPEND_TIME_BIT
        if transactional:
            attributes |= TRANSACTIONAL_BIT
        if control:
            attributes |= CONTROL_BIT
        _HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LOG_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self.count - 1,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        write_crc(batch, 0, len(batch))
        return batch


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
    builder = BatchBuilder()
    for record in records:
        builder.append(record.key, record.value, record.timestamp_ms, record.headers)
    return builder.build(
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        timestamp_type=timestamp_type,
        transactional=transactional,
        control=control,
    )


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Their number, names and values, as they end a record."""
    encoded = bytearray(varint(len(headers)))
    for name, value in headers:
        name_bytes = name.encode()
        encoded += varint(len(name_bytes))
        encoded += name_bytes
        if value is None:
            encoded += NULL_LENGTH
        else:
            encoded += varint(len(value))
            encoded += value
    return bytes(encoded)
