"""A leader refuses what stock consumers cannot read, with Kafka's codes, and decompresses in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore import record_set
from raylog.logstore.record_set import (
    INLINE_BYTES_MAX,
    CheckedRecordSet,
    RecordsRefused,
    TooMuchWork,
    check_record_set,
)
from raylog.logstore.settings import Compression, LogSettings, MessageTimestampType
from raylog.protocol.records import record_scan
from raylog.protocol.records.batch import parse_header, verify_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import decompressed_records
from tests.logstore.batches import NOW, batch
from tests.protocol.records.raw_batches import CONTROL, LOG_APPEND_TIME, raw_batch, raw_record, sized, varint

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
HUGE_MS = (1 << 63) - 1
HUGE = (1 << 31) - 1
EXCESSIVE_HEADERS = sized(b"\0\0\0\x01\x01" + varint(HUGE))


def check(
    data: bytes | bytearray, settings: LogSettings | None = None, *, from_client: bool = True, inline: int | None = None
) -> CheckedRecordSet:
    sent = memoryview(bytearray(data))
    large = settings or LogSettings(max_message_bytes=1 << 30)
    return check_record_set(sent, large, now_ms=NOW, from_client=from_client, inline_bytes=inline)


def poison(payload: bytes, count: int, **more: Any) -> bytes:
    return raw_batch(payload, count, **{"base_timestamp": NOW, "max_timestamp": NOW, **more})


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "make",
    [
        lambda codec: poison(raw_record(0), 2, codec=codec),
        lambda codec: poison(raw_record(0) + raw_record(1), 1, codec=codec),
        lambda codec: poison(raw_record(0), HUGE, codec=codec),
        lambda codec: poison(raw_record(0), -1, last_offset_delta=0, codec=codec),
        lambda codec: poison(raw_record(0), 1, last_offset_delta=-1, codec=codec),
        lambda codec: poison(raw_record(0), -HUGE, last_offset_delta=-HUGE - 1, codec=codec),
        lambda codec: poison(b"", 0, codec=codec),
        lambda codec: poison(b"", 1, codec=codec),
        lambda codec: poison(EXCESSIVE_HEADERS, 1, codec=codec),
        lambda codec: poison(raw_record(0), 1, codec=codec) * 2,
        lambda codec: poison(raw_record(HUGE), 1, codec=codec),
        lambda codec: poison(raw_record(0) + raw_record(5), 2, last_offset_delta=5, codec=codec),
        lambda codec: poison(raw_record(0), 1, codec=codec, attributes=CONTROL),
        lambda codec: poison(bytes(500), 3, codec=codec),
        lambda codec: poison(raw_record(0), 1, base_offset=1, codec=codec),
        lambda codec: poison(raw_record(0), 1, base_offset=-1, codec=codec),
    ],
    ids=[
        *(
            "too few records",
            "too many records",
            "2**31 - 1 records",
            "-1 records",
            "delta -1",
            "both negative",
            "no records",
            "one record in no bytes",
        ),
        *("2**31 - 1 headers", "two batches", "a huge offset", "a gap", "a control batch", "zeros"),
        *("a base offset", "a negative base offset"),
    ],
)
def test_poison_is_refused_as_invalid(make: Callable[[Codec], bytes], codec: Codec) -> None:
    with pytest.raises(KafkaError) as caught:
        check(make(codec))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("garbage", [b"", b"garbage", bytes(100), b"\xff" * 1000])
def test_garbage_that_is_said_to_be_compressed_is_refused_as_invalid(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        check(poison(garbage, 1, attributes=codec))
    assert caught.value.code is ErrorCode.INVALID_RECORD, "CORRUPT_MESSAGE would be sent again and again"


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "batch",
    [
        lambda codec: poison(raw_record(0, timestamp_delta=1 << 62), 1, codec=codec),
        lambda codec: poison(raw_record(0, timestamp_delta=-(1 << 63)), 1, codec=codec),
        lambda codec: poison(raw_record(0), 1, codec=codec, base_timestamp=(1 << 63) - 1),
        lambda codec: poison(raw_record(0), 1, codec=codec, base_timestamp=-(1 << 63)),
        lambda codec: poison(raw_record(0, timestamp_delta=3_600_001), 1, codec=codec),
        lambda codec: poison(raw_record(0), 1, codec=codec, attributes=LOG_APPEND_TIME),
    ],
    ids=["a delta of 2**62", "a delta of -2**63", "2**63 - 1", "-2**63", "more than an hour ahead", "LogAppendTime"],
)
def test_timestamps_beyond_their_range_are_refused(batch: Callable[[Codec], bytes], codec: Codec) -> None:
    with pytest.raises(KafkaError) as caught:
        check(batch(codec))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", list(Codec))
def test_a_timestamp_of_more_than_64_bits_is_refused_by_any_limit(codec: Codec) -> None:
    unlimited = LogSettings(message_timestamp_before_max_ms=HUGE_MS, message_timestamp_after_max_ms=HUGE_MS)
    for sign in (1, -1):
        far = sign * (1 << 62) - (sign < 0)
        batch = poison(raw_record(0, timestamp_delta=far), 1, codec=codec, base_timestamp=far, max_timestamp=far)
        with pytest.raises(RecordsRefused) as caught:
            check(batch, unlimited)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    last = poison(raw_record(0, timestamp_delta=(1 << 62) - 1), 1, codec=codec, base_timestamp=1 << 62)
    assert check(last, unlimited).batches[0][1].max_timestamp == HUGE_MS


def test_refused_records_are_listed() -> None:
    times = [NOW, NOW - 101, NOW + 51, -1]
    bounds = LogSettings(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    with pytest.raises(RecordsRefused, match=r"2 records .* record 1: the timestamp must be in") as caught:
        check(build_batch([NewRecord(None, b"", time) for time in times]), bounds)
    assert [error.record_index for error in caught.value.errors] == [1, 2]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("lie", [0, NOW - 1, NOW + 1, (1 << 63) - 1, -1])
def test_the_max_timestamp_is_that_of_the_records(codec: Codec, lie: int) -> None:
    data, ((_, header),), _ = check(poison(raw_record(0), 1, codec=codec, max_timestamp=lie))
    verify_crc(data, 0, parse_header(data))
    assert header == parse_header(data)
    assert header.max_timestamp == NOW


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_high_ratio_is_accepted_in_bounded_memory(codec: Codec) -> None:
    bomb = batch(bytes(50 << 20), codec=codec)
    tracemalloc.start()
    try:
        checked = check(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert checked.decompressed_bytes > 50 << 20
    assert peak < len(bomb) + (4 << 20)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_consumers_and_the_cleaner_do_not_decompress_is_refused(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = batch(bytes(1 << 20), codec=codec)
    size_bytes = len(decompressed_records(bomb, 0, parse_header(bomb)))
    monkeypatch.setattr(record_set, "DECOMPRESSED_BYTES_MAX", size_bytes)
    assert check(bomb).decompressed_bytes == size_bytes
    monkeypatch.setattr(record_set, "DECOMPRESSED_BYTES_MAX", size_bytes - 1)
    with pytest.raises(KafkaError, match=f"decompresses to more than {size_bytes - 1} bytes") as caught:
        check(bomb)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_snappy_block_is_decompressed_at_once_and_therefore_limited() -> None:
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(bytes(65 << 20)))
    with pytest.raises(KafkaError, match="more than 67108864 bytes") as caught:
        check(poison(raw, 1, attributes=Codec.SNAPPY))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_nothing_is_scanned_of_what_coordinators_write(codec: Codec) -> None:
    two = batch(b"a", codec=codec) + poison(EXCESSIVE_HEADERS, 1, codec=codec)
    assert [position for position, _ in check(two, from_client=False).batches] == [0, len(batch(b"a", codec=codec))]


def test_only_small_batches_are_checked_inline() -> None:
    small = batch(b"x" * 1000, codec=Codec.LZ4)
    assert check(small, inline=INLINE_BYTES_MAX).decompressed_bytes > 1000
    bomb = batch(bytes(INLINE_BYTES_MAX), codec=Codec.ZSTD)
    assert len(bomb) < 200
    for refused, left in ((bomb, INLINE_BYTES_MAX), (small, 0), (batch(*[b""] * 100_000), INLINE_BYTES_MAX)):
        with pytest.raises(TooMuchWork):
            check(refused, inline=left)
    large = LogSettings(compression=Compression(Codec.GZIP))
    with pytest.raises(TooMuchWork):
        check(batch(b"x" * INLINE_BYTES_MAX), large, inline=INLINE_BYTES_MAX)


def test_with_log_append_time_the_clients_timestamps_do_not_matter() -> None:
    settings = LogSettings(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME)
    assert check(poison(raw_record(0, timestamp_delta=1 << 62), 1, max_timestamp=5), settings).batches[0][0] == 0


def test_numba_takes_the_place_of_python_once_a_job_has_compiled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_scan, "_kernel", record_scan._PYTHON)
    assert record_scan.kernel().name == "Python"
    record_scan.compile_kernel()
    assert record_scan.kernel().name == "numba"
    in_c = record_scan.Kernel("C", record_scan.kernel().scan, 1)
    monkeypatch.setattr(record_scan, "_kernel", in_c)
    assert record_scan.compile_kernel() is in_c
