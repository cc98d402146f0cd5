"""The four compression codecs of record batches. Output is limited before it is allocated, against decompression bombs.

In a compressed batch the records, not the header, are one stream. Streams are written as by the Java client (xerial
framing for Snappy, independent blocks for LZ4), and those of all known clients can be read.
Sources: Kafka protocol guide, "Compression"; RFC 8878 (Zstandard frames); LZ4 frame format; snappy-java framing.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

import cramjam
import lz4.frame

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

_GZIP_WINDOW_BITS = 31
"""zlib's value for a 32 KiB window inside a gzip member."""
_GZIP_MEMBERS_MAX = 64
"""Largest number of members in one stream. Clients write one; each costs a copy of the remaining bytes."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_EXPANSION_MAX = 32
"""The largest expansion of a Snappy stream: its densest element makes 64 bytes from 3."""

LZ4_FAST_LEVEL = 9
"""Kafka's default level of lz4. It selects the fast compressor, whatever its position among the levels."""
_LZ4_DENSE_LEVEL_MIN, _LZ4_DENSE_LEVEL_MAX = 3, 12
_LZ4_FIRST_CHUNK_BYTES = 64 * 1024

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_WINDOW_BYTES_MAX = 8 << 20
"""Largest window accepted beyond `max_bytes`: what levels up to 19 use, and what RFC 8878 asks decoders to support."""
_RAW_BLOCK, _RLE_BLOCK, _COMPRESSED_BLOCK = 0, 1, 2


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
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise _too_long(codec, max_bytes)
        return bytes(data)
    if codec is Codec.GZIP:
        return _gunzip(data, max_bytes)
    if codec is Codec.SNAPPY:
        return _unsnap(data, max_bytes)
    if codec is Codec.LZ4:
        return _unlz4(data, max_bytes)
    return _unzstd(data, max_bytes)


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        try:
            part = member.decompress(rest, max_bytes - size + 1)
        except zlib.error as error:
            raise _malformed(Codec.GZIP, str(error)) from None
        size += len(part)
        if size > max_bytes:
            raise _too_long(Codec.GZIP, max_bytes)
        if not member.eof:
            raise _malformed(Codec.GZIP, "the stream is truncated")
        parts.append(part)
        rest = member.unused_data
        if not rest:
            return part if len(parts) == 1 else b"".join(parts)
    raise _malformed(Codec.GZIP, f"the stream has more than {_GZIP_MEMBERS_MAX} members")


def _unsnap(data: Buffer, max_bytes: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnap_block(data, max_bytes)
    view = memoryview(data)
    parts: list[bytes] = []
    left = max_bytes
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise _malformed(Codec.SNAPPY, "the header is truncated")
    while position < len(view):
        start = position + 4
        position = start + int.from_bytes(view[position:start], signed=True)
        if not start < position <= len(view):
            raise _malformed(Codec.SNAPPY, "a block does not fit the stream")
        part = _unsnap_block(view[start:position], left)
        left -= len(part)
        parts.append(part)
    return b"".join(parts)


def _unsnap_block(block: Buffer, max_bytes: int) -> bytes:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > max_bytes:
            raise _too_long(Codec.SNAPPY, max_bytes)
        if size > len(block) * _SNAPPY_EXPANSION_MAX:
            raise _malformed(Codec.SNAPPY, f"{len(block)} bytes cannot hold {size}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _malformed(Codec.SNAPPY, str(error)) from None


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    context = lz4.frame.create_decompression_context()
    view = memoryview(data)
    parts: list[bytes] = []
    size = position = 0
    chunk_bytes = max(_LZ4_FIRST_CHUNK_BYTES, 4 * len(view))
    at_end = False
    while not at_end:
        want = min(chunk_bytes, max_bytes - size + 1)
        try:
            part, consumed, at_end = lz4.frame.decompress_chunk(context, view[position:], max_length=want)
        except RuntimeError as error:
            raise _malformed(Codec.LZ4, str(error)) from None
        size += len(part)
        position += consumed
        if size > max_bytes:
            raise _too_long(Codec.LZ4, max_bytes)
        if not (part or consumed or at_end):
            raise _malformed(Codec.LZ4, "the frame is truncated")
        parts.append(part)
        chunk_bytes *= 2
    if position != len(view):
        raise _malformed(Codec.LZ4, "bytes follow the frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    output = bytearray(_zstd_size_bound(memoryview(data), max_bytes))
    try:
        size: int = cramjam.zstd.decompress_into(data, output)
    except cramjam.DecompressionError as error:
        # A full output buffer is reported as a failed write. As the blocks fit their bound, the only causes are a
        # stream longer than allowed, or one with a wrong size in its header.
        raise _malformed(Codec.ZSTD, f"{error} (at most {max_bytes} bytes are accepted)") from None
    return bytes(memoryview(output)[:size])


def _zstd_size_bound(view: memoryview, max_bytes: int) -> int:
    """An upper bound of the content's size, at most `max_bytes`, from headers alone; nothing is decompressed.

    A frame may lack its content size (streaming writers omit it), but every block has its type: a raw or run-length
    block has a known size, a compressed one at most 128 KiB.
    """
    total = position = 0
    end = len(view)
    try:
        while position < end:
            if int.from_bytes(view[position : position + 4], "little") != _ZSTD_MAGIC:
                raise _malformed(Codec.ZSTD, "no frame begins here")
            descriptor = view[position + 4]
            position += 5
            single_segment = descriptor & 0x20
            if not single_segment:
                exponent, mantissa = view[position] >> 3, view[position] & 7
                window_bytes = (1 << (10 + exponent)) * (8 + mantissa) // 8
                if window_bytes > max(max_bytes, _ZSTD_WINDOW_BYTES_MAX):
                    raise _malformed(Codec.ZSTD, f"a window of {window_bytes} bytes exceeds the maximum")
                position += 1
            position += (0, 1, 2, 4)[descriptor & 3]  # dictionary id
            size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
            content_bytes = int.from_bytes(view[position : position + size_bytes], "little")
            content_bytes += 256 if size_bytes == 2 else 0
            position += size_bytes
            if content_bytes > max_bytes:
                raise _too_long(Codec.ZSTD, max_bytes)
            certain = possible = 0
            last = 0
            while not last:
                block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
                last, kind, block_bytes = block & 1, block >> 1 & 3, block >> 3
                position += 3
                if kind == _COMPRESSED_BLOCK:
                    possible += _ZSTD_BLOCK_BYTES_MAX
                elif kind in (_RAW_BLOCK, _RLE_BLOCK):
                    certain += block_bytes
                else:
                    raise _malformed(Codec.ZSTD, "a block has the reserved type")
                position += 1 if kind == _RLE_BLOCK else block_bytes
                if total + certain > max_bytes:
                    raise _too_long(Codec.ZSTD, max_bytes)
            position += 4 if descriptor & 4 else 0  # checksum
            total = min(total + (content_bytes if size_bytes else certain + possible), max_bytes)
    except IndexError:
        raise _malformed(Codec.ZSTD, "the frame is truncated") from None
    if position != end or end == 0:
        raise _malformed(Codec.ZSTD, "the frame is truncated")
    return total


def _malformed(codec: Codec, what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()} stream: {what}")


def _too_long(codec: Codec, max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()} stream: decompresses to more than {max_bytes} bytes"
    )
