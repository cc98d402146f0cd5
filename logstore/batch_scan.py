"""Scans the batches of a file, or of a part of one, by their headers. Records are not decoded."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from raylog.core.errors import KafkaError
from raylog.logstore.disk import Disk, FileHandle
from raylog.protocol.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    crc_is_valid,
    parse_header,
    verify_crc,
)

_HEADERS_BYTES = 4096
"""Read size when only headers are needed."""
_WHOLE_BYTES = 1 << 20
"""Read size when complete batches are checked; a larger batch is read on its own."""

_PEEK = struct.Struct(">qi11xi")
"""Base offset, batch length, last offset delta: the first 27 bytes of a batch."""
PEEK_SIZE = _PEEK.size


def scan_file(
    disk: Disk, handle: FileHandle, *, position: int, size_bytes: int, whole: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from a batch boundary on, up to `size_bytes` or the first invalid batch.

    With `whole` each batch is read and its checksum verified. If the last batch does not end at `size_bytes`, an
    invalid one follows it.
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


def read_file_batches(
    disk: Disk,
    path: str,
    *,
    position: int,
    chunk_bytes: int,
    take: Callable[[memoryview, int], int] = lambda chunk, at: at,
) -> Iterator[tuple[int, memoryview, BatchHeader]]:
    """(position, batch, header) of each batch of a closed segment from a batch boundary on, read in chunks.

    `take` is called with a chunk and the position of a batch in it, and returns the position of the first batch that is
    to be yielded; it has taken those before. Each batch that is yielded is checked. Raises CORRUPT_MESSAGE and OSError.
    """
    handle = disk.open(path, writable=False)
    try:
        size_bytes = disk.size(handle)
        chunk, chunk_at = memoryview(b""), -1
        while position < size_bytes:
            at = position - chunk_at
            if len(chunk) - at < HEADER_SIZE and chunk_at != position:
                chunk, chunk_at = memoryview(disk.pread(handle, chunk_bytes, position)), position
                continue
            following = take(chunk, at)
            if following > at:
                position = chunk_at + following
                continue
            try:
                header = parse_header(chunk, at)
                if len(chunk) - at < header.size_bytes:
                    batch_bytes = min(header.size_bytes, size_bytes - position)
                    chunk = memoryview(disk.pread(handle, max(batch_bytes, chunk_bytes), position))
                    chunk_at, at = position, 0
                verify_crc(chunk, at, header)
            except KafkaError as error:
                raise KafkaError(error.code, f"{path}: at position {position}: {error.message}") from None
            yield position, chunk[at : at + header.size_bytes], header
            position += header.size_bytes
    finally:
        disk.close(handle)


def describe_missing_batch(disk: Disk, handle: FileHandle, *, position: int, size_bytes: int) -> str:
    """Why `scan_file` with `whole` ends at `position`, before the end of the file; one of a few fixed texts."""
    left = size_bytes - position
    head = disk.pread(handle, min(HEADER_SIZE, left), position)
    if not any(head):
        return "zeros"
    if len(head) < HEADER_SIZE:
        return "truncated"
    try:
        header = parse_header(head)
    except KafkaError:
        return "not a batch"
    if header.size_bytes > left:
        return "truncated"
    return "bad checksum"


def peek(data: bytes) -> tuple[int, int, int]:
    """(base offset, batch length, last offset delta) of the first batch; a length of -1 means too few bytes."""
    if len(data) < PEEK_SIZE:
        return 0, -1, 0
    base_offset, length, delta = _PEEK.unpack_from(data)
    return base_offset, length, delta


def whole_batches(data: bytes, *, upto: int) -> tuple[int, int]:
    """(end of the last complete batch of `data` below the offset `upto`, next offset)."""
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
