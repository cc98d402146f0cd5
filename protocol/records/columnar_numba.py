"""The loops of `columnar`, written for numba: one pass, and every length checked before it is used.

Compiled code has no bounds checks, so it follows these rules:

- all numbers are int64: numba converts mixed signedness to floats. The upper half of a varint is negative, and is
  rejected as a length, a count or an offset;
- the value of a varint is compared with the remaining size before it is added to a position;
- the compiled code depends on this file only, since numba's cache checks this file only.

numba is imported by the first call of `compiled_kernel`. Compiled code is cached next to this file (in `__pycache__`),
in the user's cache directory if that is read-only, or in NUMBA_CACHE_DIR if that is set. If no cache can be written,
every process compiles.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Long = int | np.int64
"""The second, as soon as it is compiled."""

_MALFORMED = -1
_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)
_INLINE_BYTES_MAX = 12
"""Arrow keeps byte strings of up to this length in the view itself."""

_CACHE_TROUBLE = (
    *(OSError, RuntimeError),  # a full disk, no directory to write to
    *(pickle.PickleError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError),  # a damaged file
)


class CompiledKernel(NamedTuple):
    """The compiled loops of this file; see `columnar.Kernel`. They run without the GIL."""

    scan: Callable[..., int]
    fill_headers: Callable[..., int]
    fill_views: Callable[..., None]


@cache
def compiled_kernel() -> CompiledKernel:
    """Compiles the loops, or loads them from the cache. Raises ImportError if numba is missing or disabled."""
    import numba
    from numba.extending import register_jitable

    if numba.config.DISABLE_JIT:
        raise ImportError("NUMBA_DISABLE_JIT is set: the loops would run as slow Python")
    for function in (_varint, _length, _word):
        register_jitable(forceinline=True, _nrt=False)(function)
    data = numba.types.Array(numba.uint8, 1, "C", readonly=True)
    int64, ints, longs = numba.int64, numba.int32[::1], numba.int64[::1]
    batches, views = numba.int64[:, ::1], numba.uint64[:, ::1]
    bounds = (int64, int64)
    return CompiledKernel(
        compiled(_scan, int64(data, batches, *bounds, longs, longs, ints, ints, ints, ints, ints, ints, ints)),
        compiled(_fill_headers, int64(data, ints, ints, ints, ints, ints, ints)),
        compiled(_fill_views, numba.void(data, ints, ints, views)),
    )


def compiled(function: Callable[..., Any], signature: object) -> Callable[..., Any]:
    """`_nrt=False`: the loops allocate nothing, and reference counting at every varint would take ten times as long."""
    import numba

    compiled: Callable[..., Any]
    try:
        compiled = numba.njit(signature, nogil=True, _nrt=False, cache=True)(function)
    except _CACHE_TROUBLE:
        compiled = numba.njit(signature, nogil=True, _nrt=False)(function)
    return compiled


def _scan(
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
    row = 0
    for batch in range(batches.shape[0]):
        at, end = batches[batch, 0], batches[batch, 1]
        base_offset, last_offset_delta = batches[batch, 2], batches[batch, 3]
        base_timestamp, max_timestamp = batches[batch, 4], batches[batch, 5]
        batch_timestamp_type = batches[batch, 6]
        previous_delta: Long = -1
        for _ in range(batches[batch, 7]):
            size, at = _length(data, at, end)
            if at < 0 or size < 0:
                return _MALFORMED
            record_end = at + size
            number, at = _varint(data, at + 1, record_end)  # behind the attributes, unused
            if at < 0:
                return _MALFORMED
            timestamp = max_timestamp
            if batch_timestamp_type == 0:
                delta = ((number >> 1) & _INT64_MAX) ^ -(number & 1)
                if delta >= 0:
                    too_far = base_timestamp > _INT64_MAX - delta
                else:
                    too_far = base_timestamp < _INT64_MIN - delta
                if number == -1 or too_far:
                    return _MALFORMED
                timestamp = base_timestamp + delta

            number, at = _varint(data, at, record_end)
            offset_delta = number >> 1
            if at < 0 or number & 1 or offset_delta <= previous_delta or offset_delta > last_offset_delta:
                return _MALFORMED
            previous_delta = offset_delta

            length_of_key, at = _length(data, at, record_end)
            if at < 0:
                return _MALFORMED
            start_of_key = at
            at += max(length_of_key, 0)

            length_of_value, at = _length(data, at, record_end)
            if at < 0:
                return _MALFORMED
            start_of_value = at
            at += max(length_of_value, 0)

            number, at = _varint(data, at, record_end)
            if at < 0 or number < 0 or number & 1 or number > record_end - at:  # two bytes for each header at least
                return _MALFORMED
            count_of_headers = number >> 1
            start_of_headers = at
            for _ in range(count_of_headers):
                size, at = _length(data, at, record_end)
                if at < 0 or size < 0:
                    return _MALFORMED
                size, at = _length(data, at + size, record_end)
                if at < 0:
                    return _MALFORMED
                at += max(size, 0)
            if at != record_end:
                return _MALFORMED

            if from_offset <= base_offset + offset_delta < end_offset:
                if offset.size:
                    offset[row] = base_offset + offset_delta
                if timestamp_ms.size:
                    timestamp_ms[row] = timestamp
                if timestamp_type.size:
                    timestamp_type[row] = batch_timestamp_type
                if key_start.size:
                    key_start[row], key_length[row] = start_of_key, length_of_key
                if value_start.size:
                    value_start[row], value_length[row] = start_of_value, length_of_value
                if headers_start.size:
                    headers_start[row], header_count[row] = start_of_headers, count_of_headers
                row += 1
        if at != end:
            return _MALFORMED
    return row


def _fill_headers(
    data: Bytes,
    headers_start: Ints,
    first: Ints,
    name_start: Ints,
    name_length: Ints,
    value_start: Ints,
    value_length: Ints,
) -> int:
    for row in range(headers_start.size):
        at: Long = np.int64(headers_start[row])
        for header in range(first[row], first[row + 1]):
            length, at = _length(data, at, data.size)
            if at < 0 or length < 0:
                return _MALFORMED
            name_start[header], name_length[header] = at, length
            length, at = _length(data, at + length, data.size)
            if at < 0:
                return _MALFORMED
            value_start[header], value_length[header] = at, length
            at += max(length, 0)
    return int(first[headers_start.size])


def _fill_views(data: Bytes, start: Ints, length: Ints, views: NDArray[np.uint64]) -> None:
    for row in range(start.size):
        at, size = np.int64(start[row]), np.int64(length[row])
        if size > _INLINE_BYTES_MAX:
            views[row, 0] = size | _word(data, at, 4) << 32
            views[row, 1] = at << 32
        elif size < 0:
            views[row, 0] = views[row, 1] = 0
        else:
            views[row, 0] = size | _word(data, at, size if size < 4 else 4) << 32
            views[row, 1] = _word(data, at + 4, size - 4)


def _word(data: Bytes, at: Long, size: Long) -> Long:
    """`size` bytes, at most eight, as a little-endian number; 0 without any."""
    word: Long = 0
    for place in range(size):
        word |= np.int64(data[at + place]) << (8 * place)
    return word


def _length(data: Bytes, at: Long, end: Long) -> tuple[Long, Long]:
    """(length, position after its varint); a length of -1 is null. The bytes fit before `end`.

    A position of -1: the varint is malformed, or the length is less than -1 or more than the remaining bytes.
    """
    number, at = _varint(data, at, end)
    if number == 1:
        return -1, at
    if number < 0 or number & 1 or number >> 1 > end - at:
        return 0, _MALFORMED
    return number >> 1, at


def _varint(data: Bytes, at: Long, end: Long) -> tuple[Long, Long]:
    """(zigzag-encoded number, position after it), with the number's 64 bits as those of an int64.

    -1 (all bits set) also stands for more than 64 bits. A position of -1: truncated, or more than 10 bytes.
    """
    if at >= end:
        return 0, _MALFORMED
    number = np.int64(data[at])
    at += 1
    if number <= 0x7F:
        return number, at
    number &= 0x7F
    shift = 7
    while at < end:
        byte = np.int64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return (-1, at) if byte <= 0x7F else (0, _MALFORMED)
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number, at
        shift += 7
    return 0, _MALFORMED
