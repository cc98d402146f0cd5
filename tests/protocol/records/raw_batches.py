"""Batches byte by byte, for tests: records with any deltas and any lies, under a true length and checksum.

Written without the builder, so that the two do not err together.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from raylog.protocol.records.compression import Codec, compress

HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20


def folded(number: int) -> bytes:
    """A varint of a number that is zigzag already; of any size."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def varint(number: int) -> bytes:
    return folded(2 * number if number >= 0 else -2 * number - 1)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def raw_record(offset_delta: int = 0, **parts: Any) -> bytes:
    return sized(raw_body(offset_delta, **parts))


def raw_body(
    offset_delta: int = 0,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """A record without its length."""
    named = b"".join(sized(name) + sized(data) for name, data in headers)
    fields = varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    return b"\0" + fields + varint(len(headers)) + named


def raw_batch(
    payload: bytes,
    count: int,
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    attributes: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
) -> bytes:
    """`count` records that are said to be in `payload`, which is compressed here."""
    stored = compress(codec, payload)
    last = max(count - 1, 0) if last_offset_delta is None else last_offset_delta
    numbers = (attributes | codec, last, base_timestamp, max_timestamp, producer_id, -1, -1, count)
    covered = HEADER.pack(base_offset, 49 + len(stored), 0, 2, 0, *numbers)[21:] + stored
    return struct.pack(">qiibI", base_offset, 49 + len(stored), 0, 2, crc32c(covered)) + covered


class GuardedMemory:
    """Memory followed by an inaccessible page: a read past the end crashes the process."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, self._size_bytes + mmap.PAGESIZE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(begin + self._size_bytes)
        if libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def hold(self, data: bytes) -> memoryview:
        """A view of `data` that ends where the guard begins; it lives until the next call."""
        start = self._size_bytes - len(data)
        self._memory[start : self._size_bytes] = data
        return memoryview(self._memory)[start : self._size_bytes].toreadonly()
