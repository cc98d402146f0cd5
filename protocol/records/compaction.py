"""What log compaction does to the records of one batch: finds the latest record of each key, and drops the others.

The work on records is in C, if there was a compiler when raylog was installed or if it came as a wheel, otherwise in
Python, with the same results. C also walks over many batches by itself, as far as they are plain: neither compressed
nor markers nor damaged. All others, and all of them without C, are worked on one by one.

A batch keeps its offsets, its producer and its sequence numbers whatever is dropped, so that offsets in the log may be
missing, and batches may be empty.
Source: Kafka documentation, "Log Compaction"; KIP-534 for the delete horizon.
"""

from __future__ import annotations

import importlib
import struct
from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, NO_TIMESTAMP_MS
from raylog.protocol.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    rebuilt,
)
from raylog.protocol.records.compression import Buffer, compress
from raylog.protocol.records.reader import DECOMPRESSED_BYTES_MAX, decompressed_records
from raylog.protocol.records.varints import varint

compiled: Any = None
"""The functions in C; None without them."""
with suppress(ImportError):
    compiled = importlib.import_module("raylog.protocol.records._compaction")

SLOT_BYTES: Final = 24
"""What one key takes in the table, as in Kafka: 16 bytes for its hash, and 8 for an offset."""
SECRET_BYTES: Final = 16
_DONE, _FULL, _MALFORMED = range(3)
_PLACE: Final = struct.Struct("=qqq")
_PLACES_MAX: Final = 4096
"""Of one call; C leaves batches for which there is no space."""
_GROWTH_BYTES: Final = 20
"""By which a record can grow when its timestamp delta changes."""
CLEANED_BYTES_MAX: Final = 3 * DECOMPRESSED_BYTES_MAX
"""Largest decompressed batch that is cleaned. Producers may send DECOMPRESSED_BYTES_MAX, and the delete horizon
lengthens the smallest records to more than twice their size."""


class Retained(NamedTuple):
    """The records of a batch that compaction retains."""

    records: Buffer
    kept: int
    tombstones: int
    """How many of them have no value."""
    largest_delta: int
    """The largest difference to the base timestamp of the batch, before it was shifted."""


class Span(NamedTuple):
    """The offsets of a segment. A batch with others is damaged: its checksum does not cover its base offset."""

    base_offset: int
    next_offset: int


class Place(NamedTuple):
    """Of a batch in a record set: what the indexes of a segment contain of it."""

    position: int
    last_offset: int
    max_timestamp: int


class RetainedBatches(NamedTuple):
    """What compaction retains of several batches."""

    following: int
    """The position of the first batch that was left for the caller."""
    batches: bytes
    places: list[Place]
    """Those of the batches that the indexes of their segment need."""
    since_index: int
    """The distance from the last batch with an index entry to the end of `batches`."""


class Terms(NamedTuple):
    """The terms of `retain_batches`. They are those of a whole cleaning."""

    now_ms: int
    horizon_ms: int
    """The delete horizon of batches that get one."""
    needed: array[int]
    """Rising last offsets of batches that do not vanish without being seen by the caller."""
    index_interval_bytes: int


class OffsetMap(Protocol):
    """The offset of the latest record of each key, up to `latest_offset`."""

    latest_offset: int
    """All batches up to here have been added. Set by the caller, and by `add_batches`."""

    def add(self, records: Buffer, header: BatchHeader, *, first: int) -> bool:
        """Add the keys of records with offsets from `first` on; False if there is no space for all of them.

        Batches are added in the order of their offsets. Raises CORRUPT_MESSAGE.
        """
        ...

    def retain(self, records: Buffer, header: BatchHeader, *, keep_tombstones: bool, shift: int = 0) -> Retained:
        """The latest record of each key, those of other keys, and all above `latest_offset`.

        `shift` is added to their timestamp deltas. Records without a key are dropped. Raises CORRUPT_MESSAGE.
        """
        ...

    def add_batches(
        self, data: memoryview, position: int, span: Span, *, first: int, may_be_transactional: bool
    ) -> int:
        """Add the keys of the batches of `data` from `position` on, up to the position that is returned.

        It leaves at least the last batch, the first one that is not in the span, and if the caller does not permit
        transactional ones, the first of them.
        """
        ...

    def retain_batches(
        self, data: memoryview, position: int, span: Span, terms: Terms, *, since_index: int
    ) -> RetainedBatches:
        """What `compacted` makes of the batches of `data` from `position` on, up to the position that is returned.

        It leaves at least the last batch, the first one that is not in the span, and the first transactional one.
        `since_index` is the distance from the last batch with an index entry.
        """
        ...


class CompiledOffsetMap:
    """Keys are represented by a hash of 128 bits, keyed by `secret`, as two keys must not be made to collide."""

    def __init__(self, keys_max: int, secret: bytes) -> None:
        self.latest_offset: int = NO_OFFSET
        self._keys_max = keys_max
        self._secret = secret
        self._used = 0
        self._slots = bytearray(SLOT_BYTES * slots_for(keys_max))
        self._out = bytearray()
        self._places = bytearray(_PLACE.size * _PLACES_MAX)

    def add(self, records: Buffer, header: BatchHeader, *, first: int) -> bool:
        event, self._used = compiled.add(
            self._slots,
            self._secret,
            self._used,
            self._keys_max,
            records,
            header.base_offset,
            header.record_count,
            first,
        )
        if event == _MALFORMED:
            raise _malformed(header)
        return bool(event == _DONE)

    def retain(self, records: Buffer, header: BatchHeader, *, keep_tombstones: bool, shift: int = 0) -> Retained:
        out = bytearray(len(records) + (header.record_count * _GROWTH_BYTES if shift else 0))
        event, kept, tombstones, largest, size = compiled.retain(
            self._slots,
            self._secret,
            records,
            header.base_offset,
            header.record_count,
            self.latest_offset,
            keep_tombstones,
            shift,
            out,
        )
        if event == _MALFORMED:
            raise _malformed(header)
        return Retained(memoryview(out)[:size], kept, tombstones, largest)

    def add_batches(
        self, data: memoryview, position: int, span: Span, *, first: int, may_be_transactional: bool
    ) -> int:
        position, self._used, last_offset = compiled.add_batches(
            self._slots,
            self._secret,
            self._used,
            self._keys_max,
            data,
            position,
            span.base_offset,
            span.next_offset,
            first,
            may_be_transactional,
        )
        self.latest_offset = max(self.latest_offset, last_offset)
        return position

    def retain_batches(
        self, data: memoryview, position: int, span: Span, terms: Terms, *, since_index: int
    ) -> RetainedBatches:
        if len(self._out) < 2 * len(data):
            self._out = bytearray(2 * len(data))
        following, size, places, since_index = compiled.retain_batches(
            self._slots,
            self._secret,
            data,
            position,
            span.base_offset,
            span.next_offset,
            self.latest_offset,
            terms.now_ms,
            terms.horizon_ms,
            terms.needed,
            terms.index_interval_bytes,
            since_index,
            self._out,
            self._places,
        )
        found = [Place._make(each) for each in _PLACE.iter_unpack(memoryview(self._places)[: places * _PLACE.size])]
        return RetainedBatches(following, bytes(memoryview(self._out)[:size]), found, since_index)


class PythonOffsetMap:
    """The same without compiled code, and about a hundred times slower."""

    def __init__(self, keys_max: int) -> None:
        self.latest_offset: int = NO_OFFSET
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    def add(self, records: Buffer, header: BatchHeader, *, first: int) -> bool:
        for record in _split(bytes(records), header):
            offset = header.base_offset + record.offset_delta
            if record.key is None or offset < first:
                continue
            if record.key not in self._offsets and len(self._offsets) >= self._keys_max:
                return False
            self._offsets[record.key] = offset
        return True

    def retain(self, records: Buffer, header: BatchHeader, *, keep_tombstones: bool, shift: int = 0) -> Retained:
        data = bytes(records)
        out = bytearray()
        kept = tombstones = 0
        largest = -(1 << 63)
        for record in _split(data, header):
            offset = header.base_offset + record.offset_delta
            if offset <= self.latest_offset and (
                record.key is None
                or offset < self._offsets.get(record.key, NO_OFFSET)
                or not (record.has_value or keep_tombstones)
            ):
                continue
            kept += 1
            tombstones += not record.has_value
            largest = max(largest, record.timestamp_delta)
            if shift:
                if not _is_int64(record.timestamp_delta + shift):
                    raise _malformed(header)
                timestamp = varint(record.timestamp_delta + shift)
                rest = data[record.offset_at : record.end]
                out += varint(1 + len(timestamp) + len(rest))
                out += data[record.body : record.body + 1] + timestamp + rest
            else:
                out += data[record.start : record.end]
        return Retained(out, kept, tombstones, largest)

    def add_batches(
        self, data: memoryview, position: int, span: Span, *, first: int, may_be_transactional: bool
    ) -> int:
        return position

    def retain_batches(
        self, data: memoryview, position: int, span: Span, terms: Terms, *, since_index: int
    ) -> RetainedBatches:
        return RetainedBatches(position, b"", [], since_index)


def offset_map(keys_max: int, secret: bytes) -> OffsetMap:
    """An empty map for that many keys. `secret` are SECRET_BYTES random bytes."""
    return PythonOffsetMap(keys_max) if compiled is None else CompiledOffsetMap(keys_max, secret)


def slots_for(keys: int) -> int:
    """The slots of a table for that many keys, of which at least a tenth remain empty."""
    return keys + keys // 9 + 1


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """When the tombstones or the marker in the batch may be dropped; None if that is not set (KIP-534)."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def compacted(batch: Buffer, header: BatchHeader, latest: OffsetMap, *, now_ms: int, horizon_ms: int) -> Buffer | None:
    """The batch with the records that are retained: the same one if all are, None if none is.

    A tombstone is retained until the delete horizon of its batch, which becomes `horizon_ms` if it is not set yet.
    Raises CORRUPT_MESSAGE.
    """
    horizon = delete_horizon_ms(header)
    records = decompressed_records(batch, 0, header, CLEANED_BYTES_MAX)
    keep_tombstones = horizon is None or now_ms < horizon
    retained = latest.retain(records, header, keep_tombstones=keep_tombstones)
    if not retained.kept:
        return None
    if retained.tombstones and horizon is None:
        shift = header.base_timestamp - horizon_ms
        if not _is_int64(shift):
            raise _malformed(header)
        shifted = latest.retain(records, header, keep_tombstones=True, shift=shift) if shift else retained
        header = _with_horizon(header, horizon_ms)
        return _with_records(header, shifted.records, shifted.kept, shifted.largest_delta + shift)
    if retained.kept == header.record_count:
        return batch
    return _with_records(header, retained.records, retained.kept, retained.largest_delta)


def with_delete_horizon(batch: Buffer, header: BatchHeader, horizon_ms: int) -> Buffer:
    """The same batch with a delete horizon: a marker that may be dropped then. Raises CORRUPT_MESSAGE."""
    records = decompressed_records(batch, 0, header, CLEANED_BYTES_MAX)
    shift = header.base_timestamp - horizon_ms
    all_of_them = PythonOffsetMap(0).retain(records, header, keep_tombstones=True, shift=shift)
    changed = _with_horizon(header, horizon_ms)
    return _with_records(changed, all_of_them.records, all_of_them.kept, all_of_them.largest_delta + shift)


def emptied(header: BatchHeader) -> Buffer:
    """The same batch without records, which keeps the last sequence number of its producer, or the end of a segment."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return rebuilt(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP_MS, record_count=0), b"")


def _with_horizon(header: BatchHeader, horizon_ms: int) -> BatchHeader:
    return header._replace(attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon_ms)


def _with_records(header: BatchHeader, records: Buffer, count: int, largest_delta: int) -> Buffer:
    if not header.attributes & LOG_APPEND_TIME_BIT:
        largest = header.base_timestamp + largest_delta
        if not _is_int64(largest):
            raise _malformed(header)
        header = header._replace(max_timestamp=largest)
    return rebuilt(header._replace(record_count=count), compress(header.codec, records))


class _Record(NamedTuple):
    """Where a record and its parts are, and what of it compaction needs."""

    start: int
    body: int
    offset_at: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def _split(data: bytes, header: BatchHeader) -> Iterator[_Record]:
    at = 0
    try:
        for _ in range(header.record_count):
            start = at
            length, body = _read_varint(data, at)
            at = body + length
            timestamp_delta, offset_at = _read_varint(data, body + 1)
            offset_delta, key_at = _read_varint(data, offset_at)
            key_length, key_at = _read_varint(data, key_at)
            key_end = key_at + max(key_length, 0)
            value_length, value_at = _read_varint(data, key_end)
            if not (key_length >= -1 and value_length >= -1 and value_at + max(value_length, 0) <= at <= len(data)):
                raise _malformed(header)
            if not 0 <= offset_delta < 1 << 31:
                raise _malformed(header)
            key = data[key_at:key_end] if key_length >= 0 else None
            yield _Record(start, body, offset_at, at, timestamp_delta, offset_delta, key, value_length >= 0)
    except IndexError:
        raise _malformed(header) from None
    if at != len(data):
        raise _malformed(header)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise IndexError


def _is_int64(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def _malformed(header: BatchHeader) -> KafkaError:
    offsets = f"the batch of offsets {header.base_offset} to {header.last_offset}"
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{offsets} cannot be compacted: its records are malformed")
