"""Decodes record batches to records, with every length checked before it is used.

One pass, local names, no call per field in the usual case: the CLI and Spark rows use this loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    OFFSET_END,
    RECORD_BYTES_MIN,
    BatchHeader,
    MalformedBatch,
    OnMalformed,
    parse_header,
)
from raylog.protocol.records.compression import Buffer, Codec, decompress
from raylog.protocol.records.isolation import Aborted, AbortedBatches

DECOMPRESSED_BYTES_MAX = 256 << 20
"""Default limit for the decompressed size of one batch."""

_VARINT_BYTES_MAX = 10


try:
    from raylog.protocol.records._decoding import decode as _decode_in_c
except ImportError:  # raylog was installed without a compiler
    _decode_in_c = None  # type: ignore[assignment]


class Record(NamedTuple):
    """One record as read. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


R = TypeVar("R", bound=tuple[Any, ...])


def read_records(
    buffer: Buffer, position: int, header: BatchHeader, *, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """All records of the batch at `position`, which must be complete in `buffer`. The checksum is not verified.

    Offsets rise strictly and stay below `header.next_offset`. In a LogAppendTime batch every record has the batch's
    max timestamp. Bytes of a header name that are not UTF-8 become U+FFFD, as in the Java client. Raises
    MalformedBatch (CORRUPT_MESSAGE), also when more than `max_bytes` would be decompressed.
    """
    return read_records_as(Record, (), buffer, position, header, max_bytes=max_bytes)


def read_records_as(
    record_type: type[R],
    prefix: tuple[Any, ...],
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    from_offset: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> list[R]:
    """Like `read_records`, from an offset on, as named tuples with these first fields and then those of Record."""
    data = decompressed_records(buffer, position, header, max_bytes)
    if from_offset is None:
        from_offset = header.base_offset
    if _decode_in_c is not None:
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
        found = _decode_in_c(
            data,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            append_time,
            header.timestamp_type,
            from_offset,
            record_type,
            prefix,
        )
        if found is not None:
            return found
    try:
        records = _decode(data, header)
    except IndexError:
        raise _corrupt(header, "a record is truncated") from None
    except MalformedBatch:
        raise
    except KafkaError as error:  # of a varint
        raise _corrupt(header, error.message) from None
    new = tuple.__new__
    return [new(record_type, (*prefix, *record)) for record in records if record.offset >= from_offset]


def read_batches(
    buffer: Buffer,
    *,
    from_offset: int = 0,
    end_offset: int = OFFSET_END,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    on_malformed: OnMalformed | None = None,
    aborted: Sequence[Aborted] = (),
) -> Iterator[Record]:
    """The records of a record set with offsets in [from_offset, end_offset), in order, without control batches.

    Those of `aborted` transactions (see `AbortedBatches`) are left out, and not decoded. A truncated last batch is
    dropped silently: a fetch may end anywhere. A malformed batch is skipped if `on_malformed` is given; otherwise
    raises MalformedBatch, after the records before it. The checksum is not verified.
    """
    aborted_batches = AbortedBatches(aborted) if aborted else None
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = parse_header(buffer, position)
        size_bytes = header.batch_length + LOG_OVERHEAD
        if size_bytes > end - position:
            return
        if header.base_offset >= end_offset:
            return
        is_aborted = aborted_batches is not None and aborted_batches.include(header)
        if header.next_offset > from_offset and not header.is_control and not is_aborted:
            try:
                records = read_records(buffer, position, header, max_bytes=max_bytes)
            except MalformedBatch as error:
                if on_malformed is None:
                    raise
                on_malformed(error)
                records = []
            if from_offset <= header.base_offset and header.next_offset <= end_offset:
                yield from records
            else:
                yield from (record for record in records if from_offset <= record.offset < end_offset)
        position += size_bytes


def whole_batches(buffer: Buffer) -> tuple[int, int]:
    """(size in bytes of the batches that are whole, one past the last offset of the last of them); zeros for none."""
    size_bytes = following = 0
    while len(buffer) - size_bytes >= HEADER_SIZE:
        header = parse_header(buffer, size_bytes)
        if size_bytes + header.size_bytes > len(buffer):
            break
        size_bytes += header.size_bytes
        following = header.next_offset
    return size_bytes, following


def decompressed_records(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The encoded records of the batch at `position`. Raises MalformedBatch."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        raise _corrupt(header, "it is truncated")
    codec = header.codec
    with memoryview(buffer) as view, view[position + HEADER_SIZE : end] as payload:
        try:
            data = bytes(payload) if codec is Codec.NONE else decompress(codec, payload, max_bytes=max_bytes)
        except KafkaError as error:
            raise _corrupt(header, error.message) from None
    if header.record_count * RECORD_BYTES_MIN > len(data):
        raise _corrupt(header, f"{len(data)} bytes cannot hold {header.record_count} records")
    return data


def _decode(data: bytes, header: BatchHeader) -> list[Record]:
    """The loop. Positions only increase, and each record must end where its length says, within `data`: so a slice
    beyond the end, which Python cuts silently, is detected at the end of its record. IndexError: truncated.
    """
    base_offset = header.base_offset
    last_offset_delta = header.last_offset_delta
    base_timestamp = header.base_timestamp
    timestamp_type = header.timestamp_type
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    no_headers: tuple[tuple[str, bytes | None], ...] = ()
    new = tuple.__new__
    record_type = Record
    records: list[Record] = []
    add = records.append
    previous_delta = -1
    end = len(data)
    at = 0
    key: bytes | None
    value: bytes | None
    for _ in range(header.record_count):
        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = _long_varint(data, at)
        if number & 1:
            raise _corrupt(header, "a record has a negative length")
        record_end = at + (number >> 1)
        if record_end > end:
            raise _corrupt(header, "a record is longer than its batch")
        at += 1  # attributes, unused

        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = _long_varint(data, at)
        timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))

        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = _long_varint(data, at)
        offset_delta = number >> 1
        if number & 1 or not previous_delta < offset_delta <= last_offset_delta:
            raise _corrupt(header, "the offsets of its records do not increase, or exceed its last offset")
        previous_delta = offset_delta

        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = _long_varint(data, at)
        if number & 1:
            if number != 1:
                raise _corrupt(header, "a key has a negative length")
            key = None
        else:
            start = at
            at += number >> 1
            key = data[start:at]

        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = _long_varint(data, at)
        if number & 1:
            if number != 1:
                raise _corrupt(header, "a value has a negative length")
            value = None
        else:
            start = at
            at += number >> 1
            value = data[start:at]

        number = data[at]
        at += 1
        headers = no_headers
        if number:
            if number > 0x7F:
                number, at = _long_varint(data, at)
            if number & 1 or number > record_end - at:  # two bytes each at least, and `number` is twice the count
                raise _corrupt(header, "a record has an impossible number of headers")
            headers, at = _decode_headers(data, at, number >> 1, header)
        if at != record_end:
            raise _corrupt(header, "the length of a record does not match its content")
        add(
            new(
                record_type,
                (
                    base_offset + offset_delta,
                    timestamp if append_time is None else append_time,
                    timestamp_type,
                    key,
                    value,
                    headers,
                ),
            )
        )
    if at != end:
        raise _corrupt(header, "bytes follow its last record")
    return records


def _decode_headers(
    data: bytes, at: int, count: int, header: BatchHeader
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """(headers, position after them). The caller checks that the position lies within the record."""
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        number, at = _varint(data, at)
        if number & 1:
            raise _corrupt(header, "a header has no name")
        start, at = at, at + (number >> 1)
        name = data[start:at].decode(errors="replace")
        number, at = _varint(data, at)
        if number & 1:
            if number != 1:
                raise _corrupt(header, "a header value has a negative length")
            headers.append((name, None))
        else:
            start, at = at, at + (number >> 1)
            headers.append((name, data[start:at]))
    return tuple(headers), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    return (number, at + 1) if number <= 0x7F else _long_varint(data, at + 1)


def _long_varint(data: bytes, at: int) -> tuple[int, int]:
    """(zigzag-encoded number, position after it) of a varint whose first byte, before `at`, has the continuation bit.

    The same loop serves 32 and 64 bits: every caller checks the range that it needs.
    """
    number = data[at - 1] & 0x7F
    shift = 7
    while shift < 7 * _VARINT_BYTES_MAX:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number, at
        shift += 7
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a varint is longer than 10 bytes")


def _corrupt(header: BatchHeader, what: str) -> MalformedBatch:
    return MalformedBatch(header.base_offset, header.next_offset, what)
