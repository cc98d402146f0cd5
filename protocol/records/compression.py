"""The four compression codecs of record batches. Output is limited before it is allocated, against decompression bombs.

In a compressed batch the records, not the header, are one stream. Streams are written as by the Java client (xerial
framing for Snappy, independent blocks for LZ4), and those of all known clients can be read.
Sources: Kafka protocol guide, "Compression"; RFC 8878 (Zstandard frames); LZ4 frame format; snappy-java framing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

import cramjam
import lz4.frame
from backports import zstd

from raylog.core.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Compression of a batch: the three low bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS_KNOWN = len(Codec)

CHUNK_BYTES = 256 * 1024
"""Largest chunk of decompressed data, so that a decompression bomb costs no memory."""
SNAPPY_BLOCK_BYTES_MAX = 64 << 20
"""Largest decompressed block of Snappy, by default."""
_INPUT_BYTES = 16 * 1024
"""How much compressed data a codec gets at once: what it has not consumed is copied with each chunk."""

_GZIP_WINDOW_BITS = 31
"""zlib's value for a 32 KiB window inside a gzip member."""
_GZIP_MEMBERS_MAX = 64
"""Largest number of members in one stream. Clients write one."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_EXPANSION_MAX = 32
"""The largest expansion of a Snappy stream: its densest element makes 64 bytes from 3."""

LZ4_FAST_LEVEL = 9
"""Kafka's default level of lz4. It selects the fast compressor, whatever its position among the levels."""
_LZ4_DENSE_LEVEL_MIN, _LZ4_DENSE_LEVEL_MAX = 3, 12
_LZ4_FIRST_CHUNK_BYTES = 64 * 1024

_ZSTD_OPTIONS: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
"""A window of 128 MiB: that of level 22, and the largest one which the Java client reads."""
_ZSTD_FRAMES_MAX = 8
"""Largest number of frames in one stream. Clients write one; each takes some 40 us, also if it is empty."""


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> bytes:
    """`data` as one stream of the codec. `level` is Kafka's number for it (KIP-390); None is the codec's usual one.

    gzip: -1 or 1 to 9; lz4: 1 to 17, of which 9 is the fast compressor and every other the dense one; zstd: -131072 to
    22; the others have no levels.
    """
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        stream = zlib.compressobj(level=zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_WINDOW_BITS)
        return stream.compress(data) + stream.flush()
    if codec is Codec.SNAPPY:
        parts = [_XERIAL_HEADER]
        for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
            parts += (len(block).to_bytes(4), block)
        return b"".join(parts)
    if codec is Codec.LZ4:
        compressed: bytes = lz4.frame.compress(
            data, compression_level=_lz4_level(level), block_linked=False, store_size=False
        )
        return compressed
    return bytes(cramjam.zstd.compress(data) if level is None else cramjam.zstd.compress(data, level=level))


def _lz4_level(level: int | None) -> int:
    """Kafka's level as liblz4 counts them: 0 is its fast compressor, 3 to 12 are the dense one."""
    if level is None or level == LZ4_FAST_LEVEL:
        return 0
    return min(max(level, _LZ4_DENSE_LEVEL_MIN), _LZ4_DENSE_LEVEL_MAX)


def decompress(codec: Codec, data: Buffer, *, max_bytes: int) -> bytes:
    """The decompressed `data`. Memory stays below about twice `max_bytes` plus a few MiB, whatever sizes `data` claims.

    Raises CORRUPT_MESSAGE when the stream is malformed, truncated, followed by other bytes, or longer than `max_bytes`.
    """
    parts: list[bytes] = []
    left = max_bytes
    for part in decompressed_chunks(codec, data, block_bytes_max=max_bytes):
        left -= len(part)
        if left < 0:
            raise _too_long(codec, max_bytes)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decompressed_chunks(
    codec: Codec, data: Buffer, *, block_bytes_max: int = SNAPPY_BLOCK_BYTES_MAX
) -> Iterator[bytes]:
    """The decompressed `data` in chunks of at most CHUNK_BYTES, except that a block of Snappy is one chunk.

    A block of Snappy has no parts that can be decompressed alone: one of more than `block_bytes_max` is refused. Raises
    CORRUPT_MESSAGE when the stream is malformed, truncated, or followed by other bytes.
    """
    return _CHUNKS[codec](data, block_bytes_max)


def _as_it_is(data: Buffer, _: int) -> Iterator[bytes]:
    yield bytes(data)


def _gunzip(data: Buffer, _: int) -> Iterator[bytes]:
    view = memoryview(data)
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        position = 0
        try:
            while not member.eof:
                piece = view[position : position + _INPUT_BYTES]
                position += len(piece)
                part = member.decompress(piece, CHUNK_BYTES)
                while member.unconsumed_tail:
                    yield part
                    part = member.decompress(member.unconsumed_tail, CHUNK_BYTES)
                if part:
                    yield part
                elif not piece:
                    raise _malformed(Codec.GZIP, "the stream is truncated")
        except zlib.error as error:
            raise _malformed(Codec.GZIP, str(error)) from None
        view = view[position - len(member.unused_data) :]
        if not view:
            return
    raise _malformed(Codec.GZIP, f"the stream has more than {_GZIP_MEMBERS_MAX} members")


def _unsnap(data: Buffer, block_bytes_max: int) -> Iterator[bytes]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _unsnap_block(data, block_bytes_max)
        return
    view = memoryview(data)
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise _malformed(Codec.SNAPPY, "the header is truncated")
    while position < len(view):
        start = position + 4
        position = start + int.from_bytes(view[position:start], signed=True)
        if not start < position <= len(view):
            raise _malformed(Codec.SNAPPY, "a block does not fit the stream")
        yield _unsnap_block(view[start:position], block_bytes_max)


def _unsnap_block(block: Buffer, block_bytes_max: int) -> bytes:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > block_bytes_max:
            raise _too_long(Codec.SNAPPY, block_bytes_max)
        if size > len(block) * _SNAPPY_EXPANSION_MAX:
            raise _malformed(Codec.SNAPPY, f"{len(block)} bytes cannot hold {size}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _malformed(Codec.SNAPPY, str(error)) from None


def _unlz4(data: Buffer, _: int) -> Iterator[bytes]:
    context = lz4.frame.create_decompression_context()
    view = memoryview(data)
    position = 0
    chunk_bytes = min(max(_LZ4_FIRST_CHUNK_BYTES, 4 * len(view)), CHUNK_BYTES)
    at_end = False
    while not at_end:
        try:
            part, consumed, at_end = lz4.frame.decompress_chunk(context, view[position:], max_length=chunk_bytes)
        except RuntimeError as error:
            raise _malformed(Codec.LZ4, str(error)) from None
        position += consumed
        if part:
            yield part
        elif not (consumed or at_end):
            raise _malformed(Codec.LZ4, "the frame is truncated")
        chunk_bytes = CHUNK_BYTES
    if position != len(view):
        raise _malformed(Codec.LZ4, "bytes follow the frame")


def _unzstd(data: Buffer, _: int) -> Iterator[bytes]:
    view = memoryview(data)
    for _ in range(_ZSTD_FRAMES_MAX):
        frame = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        position = 0
        try:
            while not frame.eof:
                piece = view[position : position + _INPUT_BYTES] if frame.needs_input else b""
                if frame.needs_input and not piece:
                    raise _malformed(Codec.ZSTD, "the frame is truncated")
                position += len(piece)
                part = frame.decompress(piece, CHUNK_BYTES)
                if part:
                    yield part
        except zstd.ZstdError as error:
            raise _malformed(Codec.ZSTD, str(error)) from None
        view = view[position - len(frame.unused_data) :]
        if not view:
            return
    raise _malformed(Codec.ZSTD, f"the stream has more than {_ZSTD_FRAMES_MAX} frames")


_CHUNKS: Mapping[Codec, Callable[[Buffer, int], Iterator[bytes]]] = {
    Codec.NONE: _as_it_is,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}


def _malformed(codec: Codec, what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()} stream: {what}")


def _too_long(codec: Codec, max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()} stream: decompresses to more than {max_bytes} bytes"
    )
