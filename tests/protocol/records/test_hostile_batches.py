"""For any bytes a batch reader returns records or refuses: truncations, flipped bits, wrong lengths."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_COUNT_AT,
    MalformedBatch,
    parse_header,
    patch_log_append_time,
    patch_offset_and_epoch,
    split_batches,
    verify_crc,
    write_crc,
)
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_batches, read_records

RECORDS = [NewRecord(b"key", b"value" * 20, 1000 + n, (("name", b"x"), ("null", None))) for n in range(5)]


def read_all(data: bytes | bytearray) -> None:
    for position, header in split_batches(data):
        verify_crc(data, position, header)
        assert len(read_records(data, position, header, max_bytes=1 << 20)) == header.record_count


def refused(code: ErrorCode, data: bytes | bytearray) -> None:
    with pytest.raises(KafkaError) as caught:
        read_all(data)
    assert caught.value.code is code


def code_of(act: Callable[[], object]) -> ErrorCode | None:
    try:
        act()
    except KafkaError as error:
        return error.code
    return None


def harmless(act: Callable[[], object]) -> None:
    """It succeeds, or refuses with one of the two codes; nothing else comes out of it."""
    assert code_of(act) in (None, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_is_refused(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for size in range(1, len(batch)):
        refused(ErrorCode.CORRUPT_MESSAGE, batch[:size])


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_of_the_records_with_a_valid_checksum_is_refused(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for size in range(HEADER_SIZE, len(batch)):
        cut = batch[:size]
        struct.pack_into(">i", cut, 8, size - LOG_OVERHEAD)
        write_crc(cut, 0, size)
        refused(ErrorCode.CORRUPT_MESSAGE, cut)


def test_every_flipped_bit_covered_by_the_checksum_is_detected() -> None:
    batch = build_batch(RECORDS)
    header = parse_header(batch)
    for at in range(17, len(batch)):
        broken = batch.copy()
        broken[at] ^= 1 << (at % 8)
        with pytest.raises(KafkaError):
            verify_crc(broken, 0, parse_header(broken) if at < HEADER_SIZE else header)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(Codec)), st.randoms(use_true_random=False))
def test_random_bytes_with_a_valid_checksum_are_read_or_refused(codec: Codec, rng: random.Random) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for _ in range(rng.randrange(1, 6)):
        batch[rng.randrange(21, len(batch))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    write_crc(batch, 0, len(batch))
    harmless(lambda: read_all(batch))
    harmless(lambda: list(read_batches(batch, max_bytes=1 << 20)))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_split_or_refused(data: bytes) -> None:
    harmless(lambda: list(split_batches(data)))


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, (1 << 31) - 1])
def test_a_hostile_batch_length_is_refused(length: int) -> None:
    batch = build_batch(RECORDS)
    struct.pack_into(">i", batch, 8, length)
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


@pytest.mark.parametrize("count", [-1, 4, 6, (1 << 31) - 1])
def test_a_hostile_record_count_is_refused(count: int) -> None:
    batch = build_batch(RECORDS)
    struct.pack_into(">i", batch, RECORD_COUNT_AT, count)
    write_crc(batch, 0, len(batch))
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


def around(records: bytes, count: int) -> bytearray:
    """A batch with these bytes as its records, under a true length and checksum."""
    data = build_batch([NewRecord(None, None, 0)] * count)[:HEADER_SIZE] + records
    struct.pack_into(">i", data, 8, len(data) - LOG_OVERHEAD)
    write_crc(data, 0, len(data))
    return data


SMALLEST = b"\x0c\0\0\0\x01\x01\0"


@pytest.mark.parametrize(
    "records",
    [
        SMALLEST[:6],  # ends before the number of headers
        b"\x0d" + SMALLEST[1:],  # negative length
        b"\x0e" + SMALLEST[1:],  # longer than the batch
        b"\x0c\0\0\0\x03\x01\0",  # a key of length -2
        b"\x0c\0\0\0\x01\x03\0",  # a value of length -2
        b"\x14\0\0\0\x01\xfe\xff\xff\xff\x0f\0",  # a value of 2 GiB
        b"\x0c\0\0\0\x01\x01\x7e",  # 63 headers in no bytes
        b"\x0c\0\0\0\x01\x01\x01",  # -1 headers
        b"\x10\0\0\0\x01\x01\x02\x01\x01",  # a header without a name
        b"\x10\0\0\0\x01\x01\x02\x00\x03",  # a header value of length -2
        b"\x0c\0\0\x01\x01\x01\0",  # a negative offset
        b"\x0c\0\0\x02\x01\x01\0",  # an offset behind the batch's last
        b"\x0e\0\0\0\x01\x01\0\0",  # a byte too many inside the record
        b"\x0c\0\0\0\x01\x01\0\0",  # a byte too many behind it
        b"\xff" * 12,  # a varint without end
    ],
)
def test_malformed_records_are_refused(records: bytes) -> None:
    good = around(SMALLEST, 1)
    assert len(read_records(good, 0, parse_header(good))) == 1
    refused(ErrorCode.CORRUPT_MESSAGE, around(records, 1))


def test_a_batch_with_a_varint_without_end_is_skipped_as_malformed() -> None:
    malformed: list[MalformedBatch] = []
    data = around(b"\xff" * 12, 1) + around(SMALLEST, 1)
    assert len(list(read_batches(data, on_malformed=malformed.append))) == 1
    assert [error.message for error in malformed] == [
        "the batch of offsets 0 to 0 is malformed: a varint is longer than 10 bytes"
    ]


def test_a_record_with_a_wrong_length_is_refused_even_if_the_total_is_right() -> None:
    second = b"\x0c\0\0\x02\x01\x01\0"
    good = around(SMALLEST + second, 2)
    assert len(read_records(good, 0, parse_header(good))) == 2
    refused(ErrorCode.CORRUPT_MESSAGE, around(b"\x0a" + SMALLEST[1:] + second, 2))
    refused(ErrorCode.CORRUPT_MESSAGE, around(SMALLEST + SMALLEST, 2))  # offsets that do not rise


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_have_their_own_error(magic: int) -> None:
    batch = build_batch(RECORDS)
    batch[MAGIC_AT] = magic
    refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, batch)
    refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, batch[:30])
    batch[MAGIC_AT] = 3
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


def test_patched_batches_have_a_valid_checksum() -> None:
    batch = build_batch(RECORDS)
    patch_offset_and_epoch(batch, 0, parse_header(batch), 1 << 40, 9)
    header = parse_header(batch)
    verify_crc(batch, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 9)
    patch_log_append_time(batch, 0, header, 77)
    header = parse_header(batch)
    verify_crc(batch, 0, header)
    assert {(r.timestamp_ms, r.timestamp_type) for r in read_records(batch, 0, header)} == {(77, 1)}
