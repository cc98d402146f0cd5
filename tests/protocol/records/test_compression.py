"""Decompression returns the data or refuses, and its memory is bounded by the caller, not by the stream."""

from __future__ import annotations

import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.compression import Codec, compress, decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
BOMB_BYTES = 64 << 20
LIMIT = 1 << 20
WORDS = b"".join(b"flight %d to %d, " % (number * number, number % 7) for number in range(5000))


def corrupt(codec: Codec, data: bytes, max_bytes: int = LIMIT) -> str:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, max_bytes=max_bytes)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    return caught.value.message


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(Codec)), st.binary(max_size=5000), st.integers(1, 60))
def test_round_trip(codec: Codec, data: bytes, repeat: int) -> None:
    data *= repeat
    packed = compress(codec, data)
    assert decompress(codec, packed, max_bytes=len(data)) == data
    assert decompress(codec, memoryview(packed), max_bytes=len(data) + 1) == data
    if data:
        corrupt(codec, packed, len(data) - 1)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [-1, 1, 9]), (Codec.LZ4, [1, 2, 3, 9, 12, 17]), (Codec.ZSTD, [-131_072, -1, 0, 3, 22])],
)
def test_every_level_of_kafka_is_accepted_and_read_back(codec: Codec, levels: list[int]) -> None:
    sizes = {}
    for level in levels:
        packed = compress(codec, WORDS, level=level)
        assert decompress(codec, packed, max_bytes=len(WORDS)) == WORDS
        sizes[level] = len(packed)
    fast, dense = {Codec.GZIP: (1, 9), Codec.LZ4: (9, 17), Codec.ZSTD: (-131_072, 22)}[codec]
    assert sizes[dense] < sizes[fast]


def bombs() -> list[tuple[Codec, bytes]]:
    zeros = bytes(BOMB_BYTES)
    xerial = compress(Codec.SNAPPY, b"")
    block = bytes(cramjam.snappy.compress_raw(zeros))
    return [
        (Codec.GZIP, compress(Codec.GZIP, zeros)),
        (Codec.SNAPPY, compress(Codec.SNAPPY, zeros)),
        (Codec.SNAPPY, block),
        (Codec.SNAPPY, xerial + len(block).to_bytes(4) + block),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20),
        (Codec.LZ4, lz4.frame.compress(zeros, block_size=7)),
        (Codec.ZSTD, compress(Codec.ZSTD, zeros)),
        (Codec.ZSTD, zstd_streamed(zeros)),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\x00\x00"),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00"),
    ]


def zstd_streamed(data: bytes) -> bytes:
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


@pytest.mark.parametrize(("codec", "bomb"), bombs())
def test_a_bomb_is_refused_without_allocating_its_size(codec: Codec, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        corrupt(codec, bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMIT + 4 * len(bomb)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncated_and_extended_streams_are_refused(codec: Codec) -> None:
    packed = compress(codec, b"some words, some words, some words" * 10)
    for size in range(1, len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # xerial's header alone is an empty stream
        corrupt(codec, packed[:size])
    corrupt(codec, packed + b"\0")


def test_zstd_without_a_content_size_is_read() -> None:
    data = bytes(range(256)) * 3000
    packed = zstd_streamed(data)
    assert packed[4] & 0xE0 == 0, "the frame must not carry its content size, or this tests nothing"
    assert decompress(Codec.ZSTD, packed, max_bytes=len(data)) == data
    assert decompress(Codec.ZSTD, packed + packed, max_bytes=2 * len(data)) == data * 2


def test_snappy_is_read_in_both_framings_and_written_in_xerials() -> None:
    data = bytes(range(256)) * 300
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\0" + bytes.fromhex("0000000100000001")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), max_bytes=1 << 20) == data


def test_lz4_blocks_are_independent_as_the_java_client_requires() -> None:
    assert compress(Codec.LZ4, b"x")[4] & 0x20


def test_gzip_with_several_members_is_read_and_their_number_is_limited() -> None:
    member = compress(Codec.GZIP, b"a")
    assert decompress(Codec.GZIP, member * 3, max_bytes=3) == b"aaa"
    assert "members" in corrupt(Codec.GZIP, member * 65)
    assert zlib.decompress(member, wbits=31) == b"a"


def test_the_number_of_zstd_frames_is_limited() -> None:
    """Each takes a decompressor of its own, also if it is empty."""
    empty = compress(Codec.ZSTD, b"")
    assert decompress(Codec.ZSTD, empty * 7 + compress(Codec.ZSTD, b"a"), max_bytes=1) == b"a"
    assert "more than 8 frames" in corrupt(Codec.ZSTD, empty * 9)
