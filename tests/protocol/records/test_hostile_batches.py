"""No bytes make a batch reader do more than refuse: every truncation, every flipped bit, every lying length."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_COUNT_AT,
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


def refused(code: ErrorCode, data: bytes | bytearray) -> None:
    with pytest.raises(KafkaError) as caught:
        for position, header in split_batches(data):
            verify_crc(data, position, header)
            read_records(data, position, header)
    assert caught.value.code is code


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_is_refused(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for size in range(1, len(batch)):
        refused(ErrorCode.CORRUPT_MESSAGE, batch[:size])


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_of_the_records_is_refused_under_a_valid_checksum(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for size in range(HEADER_SIZE, len(batch)):
        cut = batch[:size]
        struct.pack_into(">i", cut, 8, size - LOG_OVERHEAD)
        write_crc(cut, 0, size)
        refused(ErrorCode.CORRUPT_MESSAGE, cut)


def test_every_flipped_bit_behind_the_checksum_is_seen() -> None:
    batch = build_batch(RECORDS)
    header = parse_header(batch)
    for at in range(17, len(batch)):
        broken = batch.copy()
        broken[at] ^= 1 << (at % 8)
        with pytest.raises(KafkaError):
            verify_crc(broken, 0, parse_header(broken) if at < HEADER_SIZE else header)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(Codec)), st.randoms(use_true_random=False))
def test_garbage_under_a_valid_checksum_is_read_or_refused(codec: Codec, rng: random.Random) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for _ in range(rng.randrange(1, 6)):
        batch[rng.randrange(21, len(batch))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    write_crc(batch, 0, len(batch))
    try:
        for position, header in split_batches(batch):
            assert len(read_records(batch, position, header, max_bytes=1 << 20)) == header.record_count
        list(read_batches(batch, max_bytes=1 << 20))
    except KafkaError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_split_or_refused(data: bytes) -> None:
    try:
        list(split_batches(data))
    except KafkaError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


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


@pytest.mark.parametrize(
    "record",
    [
        b"\x0e\0\0\0\x01\x01\0"[:6],  # ends before the number of headers
        b"\x0f\0\0\0\x01\x01\0",  # negative length
        b"\x0e\0\0\0\x03\x01\0",  # a key of length -2
        b"\x0e\0\0\0\x01\xfe\xff\xff\xff\x0f\0",  # a value of 2 GiB
        b"\x0e\0\0\0\x01\x01\x7e",  # 63 headers in no bytes
        b"\x0e\0\0\x01\x01\x01\0",  # a negative offset
        b"\x0e\0\0\x02\x01\x01\0",  # an offset behind the batch's last
        b"\x10\0\0\0\x01\x01\0\0",  # a byte too many inside the record
        b"\x0e\0\0\0\x01\x01\0\0",  # a byte too many behind it
        b"\xff" * 12,  # a varint without end
    ],
)
def test_malformed_records_are_refused(record: bytes) -> None:
    batch = build_batch([NewRecord(None, None, 0)])[:HEADER_SIZE] + record
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD)
    write_crc(batch, 0, len(batch))
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_an_answer_of_their_own(magic: int) -> None:
    batch = build_batch(RECORDS)
    batch[MAGIC_AT] = magic
    refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, batch)
    refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, batch[:30])
    batch[MAGIC_AT] = 3
    refused(ErrorCode.CORRUPT_MESSAGE, batch)


def test_patches_keep_the_checksum_true() -> None:
    batch = build_batch(RECORDS)
    patch_offset_and_epoch(batch, 0, 1 << 40, 9)
    header = parse_header(batch)
    verify_crc(batch, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 9)
    patch_log_append_time(batch, 0, header, 77)
    header = parse_header(batch)
    verify_crc(batch, 0, header)
    assert {(r.timestamp_ms, r.timestamp_type) for r in read_records(batch, 0, header)} == {(77, 1)}
