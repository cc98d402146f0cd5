"""The loops of `columnar` without a compiler: a short Python step for each record and each header, numpy for the rest.

See `columnar.Kernel` for the arguments and results. Varints are decoded for all records at once, one round for each of
their bytes. As in `columnar_numba`, their 64 bits are those of an int64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_MALFORMED = -1
_INT64 = np.iinfo(np.int64)
_VARINT_BITS_MAX = 70
_INLINE_BYTES_MAX = 12
"""Arrow keeps byte strings of up to this length in the view itself."""


class _Malformed(Exception):
    """A record is malformed; kernels return -1 for it."""


def scan(
    data: Bytes,
    batches: Longs,
    from_offset: int,
    end_offset: int,
    offset: Longs,
    timestamp_ms: Longs,
    timestamp_type: Ints,
    key_start: Ints,
    key_length: Ints,
    value_start: Ints,
    value_length: Ints,
    headers_start: Ints,
    header_count: Ints,
) -> int:
    counts = batches[:, 7]
    base_offset, last_offset_delta, base_timestamp, max_timestamp, type_of_batch = (
        np.repeat(column, counts) for column in batches[:, 2:7].T
    )
    raw = data.tobytes()
    try:
        at, end = _records(raw, batches)
        number, at = _varints(data, at + 1, end)  # behind the attributes, unused
        timestamps = np.where(type_of_batch == 0, _add(base_timestamp, number, type_of_batch == 0), max_timestamp)
        number, at = _varints(data, at, end)
        offset_delta = number >> 1
        rises = np.diff(offset_delta, prepend=-1) > 0
        rises[_firsts(counts)] = True
        _refuse((number < 0) | (number & 1 != 0) | (offset_delta > last_offset_delta) | ~rises)
        length_of_key, start_of_key = _lengths(data, at, end)
        length_of_value, start_of_value = _lengths(data, start_of_key + np.maximum(length_of_key, 0), end)
        number, at = _varints(data, start_of_value + np.maximum(length_of_value, 0), end)
        _refuse((number < 0) | (number & 1 != 0) | (number > end - at))  # two bytes for each header at least
        count_of_headers, start_of_headers = number >> 1, at.copy()
        for row in np.flatnonzero(count_of_headers).tolist():
            position = int(at[row])
            for _ in range(count_of_headers[row]):
                _, _, value_at, length = _header(raw, position, int(end[row]))
                position = value_at + max(length, 0)
            at[row] = position
        _refuse(at != end)
    except (_Malformed, IndexError):
        return _MALFORMED

    offsets = base_offset + offset_delta
    shown = (offsets >= from_offset) & (offsets < end_offset)
    rows = int(np.count_nonzero(shown))
    for output, column in (
        (offset, offsets),
        (timestamp_ms, timestamps),
        (timestamp_type, type_of_batch),
        (key_start, start_of_key),
        (key_length, length_of_key),
        (value_start, start_of_value),
        (value_length, length_of_value),
        (headers_start, start_of_headers),
        (header_count, count_of_headers),
    ):
        if output.size:
            output[:rows] = column if rows == len(column) else column[shown]
    return rows


def fill_headers(
    data: Bytes,
    headers_start: Ints,
    first: Ints,
    name_start: Ints,
    name_length: Ints,
    value_start: Ints,
    value_length: Ints,
) -> int:
    raw = data.tobytes()
    header = 0
    try:
        for row in np.flatnonzero(np.diff(first)).tolist():
            at = int(headers_start[row])
            for header in range(first[row], first[row + 1]):
                name_start[header], name_length[header], value_at, length = _header(raw, at, len(raw))
                value_start[header], value_length[header] = value_at, length
                at = value_at + max(length, 0)
    except (_Malformed, IndexError):
        return _MALFORMED
    return int(first[-1])


def fill_views(data: Bytes, start: Ints, length: Ints, views: NDArray[np.uint64]) -> None:
    """Lengths, then bytes 4 to 16 of each view: the string itself, or its first four bytes, buffer 0 and its start."""
    words = views.view(np.int32)
    words[:] = 0
    words[:, 0] = np.maximum(length, 0)
    is_long = length > _INLINE_BYTES_MAX
    words[:, 3][is_long] = start[is_long]
    letters = views.view(np.uint8)
    for place in range(_INLINE_BYTES_MAX):
        rows = np.flatnonzero(length > place if place < 4 else (length > place) & ~is_long)
        if not rows.size:
            return
        letters[rows, 4 + place] = data[start[rows] + place]


def _records(raw: bytes, batches: Longs) -> tuple[Longs, Longs]:
    """(start, end) of every record after its length. Raises _Malformed, IndexError.

    Positions only increase, so a record beyond the end of its batch is detected at the end of the batch.
    """
    starts: list[int] = []
    ends: list[int] = []
    for at, end, *_, count in batches.tolist():
        for _ in range(count):
            number = raw[at]
            at += 1
            if number > 0x7F:
                number, at = _long_varint(raw, at)
            if number & 1:
                raise _Malformed
            starts.append(at)
            at += number >> 1
            ends.append(at)
        if at != end:
            raise _Malformed
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _firsts(counts: Longs) -> Longs:
    """The row of each batch's first record, for those that have any."""
    firsts: Longs = np.cumsum(counts) - counts
    return firsts[counts > 0]


def _add(base: Longs, folded: Longs, relevant: NDArray[np.bool_]) -> Longs:
    """base + delta. Raises _Malformed if a `relevant` sum does not fit into 64 bits."""
    delta = ((folded >> 1) & _INT64.max) ^ -(folded & 1)
    total = base + delta
    wrapped = (total < base) != (delta < 0)
    _refuse(relevant & ((folded == -1) | wrapped))
    return total


def _lengths(data: Bytes, at: Longs, end: Longs) -> tuple[Longs, Longs]:
    """(length, position of the bytes), which fit before `end`; a length of -1: null. Raises _Malformed."""
    number, at = _varints(data, at, end)
    _refuse((number != 1) & ((number < 0) | (number & 1 != 0) | (number >> 1 > end - at)))
    return np.where(number == 1, -1, number >> 1), at


def _varints(data: Bytes, at: Longs, end: Longs) -> tuple[Longs, Longs]:
    """(zigzag-encoded numbers, positions after them). Raises _Malformed: truncated, or more than 10 bytes.

    -1 (all bits set) also stands for more than 64 bits.
    """
    _refuse(at >= end)
    number = data[at].astype(np.int64)
    at = at + 1
    longer = np.flatnonzero(number > 0x7F)
    number[longer] &= 0x7F
    for shift in range(7, _VARINT_BITS_MAX, 7):
        if not longer.size:
            break
        place = at[longer]
        _refuse(place >= end[longer])
        byte = data[place].astype(np.int64)
        at[longer] = place + 1
        more = number[longer] | (byte & 0x7F) << shift
        number[longer] = np.where(byte > 1, -1, more) if shift == _VARINT_BITS_MAX - 7 else more
        longer = longer[byte > 0x7F]
    if longer.size:
        raise _Malformed
    return number, at


def _refuse(wrong: NDArray[np.bool_]) -> None:
    if wrong.any():
        raise _Malformed


def _header(raw: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """(start of the name, its length, start of the value, its length). Raises _Malformed, IndexError."""
    number = raw[at]
    at += 1
    if number > 0x7F:
        number, at = _long_varint(raw, at)
    name_at, name_length = at, number >> 1
    at += name_length
    if number & 1 or at >= end:
        raise _Malformed
    number = raw[at]
    at += 1
    if number > 0x7F:
        number, at = _long_varint(raw, at)
    if number == 1:
        return name_at, name_length, at, -1
    if number & 1 or number >> 1 > end - at:
        raise _Malformed
    return name_at, name_length, at, number >> 1


def _long_varint(raw: bytes, at: int) -> tuple[int, int]:
    """(zigzag-encoded number, position after it) of a varint whose first byte is before `at`.

    Raises _Malformed, IndexError.
    """
    number = raw[at - 1] & 0x7F
    for shift in range(7, _VARINT_BITS_MAX, 7):
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number, at
    raise _Malformed
