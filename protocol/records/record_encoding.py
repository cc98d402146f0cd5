"""Encodes records into the body of a batch, and hashes keys, for producers.

Each function exists twice with the same results: in C, if there was a compiler when raylog was installed or if it came
as a wheel, and in Python. A column of keys, values or headers is described by the buffers of an Arrow array, see
`Column`; this file knows nothing of Arrow itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.varints import NULL_LENGTH, varint

compiled: Any = None
"""The functions in C; None without them."""
with suppress(ImportError):
    compiled = importlib.import_module("raylog.protocol.records._encoding")

RECORD_BYTES_MAX: Final = (1 << 31) - 1
_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_INT64_MIN: Final = -(1 << 63)


class Column(NamedTuple):
    """Bytes of each row, as Arrow keeps them."""

    validity: Buffer | None
    """One bit for each row, 0 for null; None if no row is null."""
    offsets: Buffer | None
    """Native integers: where the value of each row begins in `data`, and after the last one where it ends."""
    data: Buffer | None
    first: int
    """The row of the buffers that is row 0 of the column."""
    width: int
    """The bytes of an offset, 4 or 8; of values of fixed width, negated, which have no offsets."""

    def get(self, row: int) -> bytes | None:
        row += self.first
        if self.validity is not None and not memoryview(self.validity)[row >> 3] >> (row & 7) & 1:
            return None
        data = memoryview(self.data or b"")
        if self.width < 0:
            return bytes(data[-self.width * row : -self.width * (row + 1)])
        assert self.offsets is not None
        offsets = memoryview(self.offsets).cast("B").cast("i" if self.width == 4 else "q")
        return bytes(data[offsets[row] : offsets[row + 1]])


def append_record_in_python(
    body: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes | None,
) -> None:
    """Append one record; `headers` are encoded, None for no headers. Raises OverflowError for 2 GiB and more."""
    start = b"\0" + varint(timestamp_delta) + varint(offset_delta)  # attributes are unused
    key_head = NULL_LENGTH if key is None else varint(len(key))
    value_head = NULL_LENGTH if value is None else varint(len(value))
    key, value, headers = key or b"", value or b"", headers or b"\0"
    size = len(start) + len(key_head) + len(key) + len(value_head) + len(value) + len(headers)
    if size > RECORD_BYTES_MAX:
        raise OverflowError("the record is larger than 2 GiB")
    body += b"".join((varint(size), start, key_head, key, value_head, value, headers))


def shorten_in_python(body: bytearray, size: int) -> None:
    """Drop all but the first `size` bytes; in C the memory is kept. Raises BufferError while a view of it is in use."""
    del body[size:]


def murmur2_in_python(data: bytes) -> int:
    """The 32-bit hash that Kafka's Java client computes of a key, as an unsigned number.

    Source: org.apache.kafka.common.utils.Utils.murmur2; Austin Appleby's MurmurHash2 with a fixed seed.
    """
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def append_columns_in_python(
    body: bytearray,
    start: int,
    end: int,
    order: Buffer | None,
    rows: int,
    keys: Column | None,
    values: Column | None,
    headers: Column | None,
    timestamps: Buffer | None,
    base_timestamp: int,
    bytes_max: int,
) -> tuple[int, int]:
    """Append the rows `order[start]` to `order[end - 1]`, without `order` the rows of these numbers.

    The columns have `rows` rows, a missing one has nulls only; `order` and `timestamps` are int64, without the latter
    every record has `base_timestamp`. Offsets begin with 0 at `start`. Stops before the record that would make the body
    longer than `bytes_max`, but after at least one. Returns where it stopped, and the largest timestamp. Raises
    ValueError for rows that the columns do not have.
    """
    numbers = _int64(order)
    times = _int64(timestamps)
    largest = _INT64_MIN
    for at in range(start, end):
        row = at if numbers is None else numbers[at]
        if not 0 <= row < rows:
            raise ValueError("a row or an offset is not within its column")
        timestamp = base_timestamp if times is None else times[row]
        before = len(body)
        fields = [None if column is None else column.get(row) for column in (keys, values, headers)]
        append_record_in_python(body, timestamp - base_timestamp, at - start, *fields)
        if at > start and len(body) > bytes_max:
            del body[before:]
            return at, largest
        largest = max(largest, timestamp)
    return end, largest


def partitions_of_in_python(keys: Column | None, rows: int, partition_count: int, out: Buffer) -> None:
    """Write the partition of each key into `out`, which has room for `rows` int64; -1 for null."""
    found = memoryview(out).cast("B").cast("q")
    for row in range(rows):
        key = None if keys is None else keys.get(row)
        found[row] = -1 if key is None else (murmur2_in_python(key) & 0x7FFFFFFF) % partition_count


def _int64(buffer: Buffer | None) -> Sequence[int] | None:
    return None if buffer is None else memoryview(buffer).cast("B").cast("q")


append_record: Callable[[bytearray, int, int, bytes | None, bytes | None, bytes | None], None] = getattr(
    compiled, "append_record", append_record_in_python
)
shorten: Callable[[bytearray, int], None] = getattr(compiled, "shorten", shorten_in_python)
murmur2: Callable[[bytes], int] = getattr(compiled, "murmur2", murmur2_in_python)
append_columns: Callable[..., tuple[int, int]] = getattr(compiled, "append_columns", append_columns_in_python)
partitions_of: Callable[[Column | None, int, int, Buffer], None] = getattr(
    compiled, "partitions_of", partitions_of_in_python
)
ENGINE: Final = "Python" if compiled is None else "C"
