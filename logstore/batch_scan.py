"""The batches of a file or of a piece of one, told apart by their headers. No record is decoded."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from raylog.core.errors import KafkaError
from raylog.logstore.disk import Disk, FileHandle
from raylog.protocol.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    crc_is_valid,
    parse_header,
)

_HEADERS_BYTES = 4096
"""Read at once when only headers are wanted."""
_WHOLE_BYTES = 1 << 20
"""Read at once when whole batches are checked; a larger batch is read by itself."""

_PEEK = struct.Struct(">qi11xi")
"""Base offset, batch length, last offset delta: the first 27 bytes of a batch."""
PEEK_SIZE = _PEEK.size


def scan_file(
    disk: Disk, handle: FileHandle, *, position: int, size_bytes: int, whole: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) from a batch boundary on, to `size_bytes` or to the first batch that cannot be.

    With `whole` each batch is read and its checksum verified. The caller compares the end of the last one with
    `size_bytes`.
    """
    chunk_bytes = _WHOLE_BYTES if whole else _HEADERS_BYTES
    chunk, chunk_at = b"", 0
    while size_bytes - position >= HEADER_SIZE:
        at = position - chunk_at
        if len(chunk) - at < HEADER_SIZE:
            chunk, chunk_at, at = disk.pread(handle, chunk_bytes, position), position, 0
        try:
            header = parse_header(chunk, at)
        except KafkaError:
            return
        batch_bytes = header.batch_length + LOG_OVERHEAD
        if batch_bytes > size_bytes - position:
            return
        if whole:
            if len(chunk) - at < batch_bytes:
                chunk = disk.pread(handle, max(batch_bytes, chunk_bytes), position)
                chunk_at, at = position, 0
            if len(chunk) - at < batch_bytes or not crc_is_valid(chunk, at, header):
                return
        yield position, header
        position += batch_bytes


def why_no_batch(disk: Disk, handle: FileHandle, *, position: int, size_bytes: int) -> str:
    """In fixed words, why `scan_file` with `whole` ends at `position`, which lies before the end of the file."""
    left = size_bytes - position
    head = disk.pread(handle, min(HEADER_SIZE, left), position)
    if not any(head):
        return "zeros"
    if len(head) < HEADER_SIZE:
        return "truncated"
    try:
        header = parse_header(head)
    except KafkaError:
        return "no batch"
    if header.size_bytes > left:
        return "truncated"
    return "bad checksum"


def peek(data: bytes) -> tuple[int, int, int]:
    """(base offset, batch length, last offset delta) of the batch at the beginning; a length of -1: too few bytes."""
    if len(data) < PEEK_SIZE:
        return 0, -1, 0
    base_offset, length, delta = _PEEK.unpack_from(data)
    return base_offset, length, delta


def whole_batches(data: bytes, *, upto: int) -> tuple[int, int]:
    """(where the last whole batch of `data` below the offset `upto` ends, offset that follows it)."""
    unpack = _PEEK.unpack_from
    size = len(data)
    end = next_offset = 0
    while size - end >= HEADER_SIZE:
        base_offset, length, delta = unpack(data, end)
        following = end + length + LOG_OVERHEAD
        if length < BATCH_LENGTH_MIN or following > size or base_offset + delta >= upto:
            break
        end, next_offset = following, base_offset + delta + 1
    return end, next_offset
