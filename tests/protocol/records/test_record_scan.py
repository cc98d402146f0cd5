"""The scan accepts exactly the records that consumers can read, in all three languages and however they are split."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records import record_scan
from raylog.protocol.records.batch import HEADER_SIZE, parse_header
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_records
from raylog.protocol.records.record_scan import RECORD_ERRORS_MAX, Kernel, RecordError, RecordScan
from tests.protocol.records.raw_batches import GuardedMemory, folded, raw_batch, raw_body, raw_record, sized, varint

INT64_MAX = (1 << 63) - 1
RECORDS = [
    NewRecord(b"key", b"value" * 30, 1000, (("name", b"x" * 70), ("null", None), ("", b""))),
    NewRecord(None, b"", 990),
    NewRecord(b"", None, 5000),
]


def kernels() -> list[Kernel]:
    """The loop in C only if there was a compiler when this environment was made."""
    found = [record_scan._in_c(), record_scan._in_numba(), record_scan._PYTHON]
    return [each for each in found if each is not None]


@pytest.fixture(params=["C", "numba", "Python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    wanted = next((each for each in kernels() if each.name == request.param), None)
    if wanted is None:
        pytest.skip(f"{request.param} is not available")
    monkeypatch.setattr(record_scan, "_kernel", wanted)
    return wanted


class Result(NamedTuple):
    """Of a scan: the code and the message of its refusal, or the errors of records and the largest timestamp."""

    errors: tuple[RecordError, ...] = ()
    largest: int | None = None
    code: ErrorCode = ErrorCode.NONE
    message: str = ""


def scanned(
    batch: bytes | bytearray, cuts: Sequence[int] = (), *, lowest: int = -INT64_MAX, keys: bool = False
) -> Result:
    header = parse_header(batch)
    scan = RecordScan(header, lowest_ms=lowest, highest_ms=INT64_MAX, needs_keys=keys)
    payload = bytes(batch[HEADER_SIZE:])
    ends = [*sorted(cut % (len(payload) + 1) for cut in cuts), len(payload)]
    try:
        at = 0
        for end in ends:
            scan.feed(memoryview(payload)[at:end])
            at = end
        return Result(tuple(scan.errors), scan.finish())
    except KafkaError as error:
        return Result(code=error.code, message=error.message)


def is_readable(batch: bytes | bytearray) -> bool:
    """What the scan should accept: records that decode, with offsets and timestamps that do not surprise."""
    header = parse_header(batch)
    try:
        records = read_records(batch, 0, header)
    except KafkaError:
        return False
    dense = [record.offset - header.base_offset for record in records] == list(range(len(records)))
    return dense and all(-(1 << 63) <= record.timestamp_ms - header.base_timestamp < 1 << 63 for record in records)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_it_accepts_what_can_be_read_in_every_language(data: st.DataObject) -> None:
    batch = build_batch(RECORDS, codec=Codec.NONE)
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    cuts = data.draw(st.lists(st.integers(0, 1000), max_size=6))
    right = record_scan._kernel
    try:
        found = []
        for each in kernels():
            record_scan._kernel = each
            found += [scanned(batch), scanned(batch, cuts)]
    finally:
        record_scan._kernel = right
    assert found == found[:1] * len(found)
    assert (found[0].code is ErrorCode.NONE) is is_readable(batch)


@pytest.mark.parametrize(
    ("payload", "count", "complaint"),
    [
        (raw_record(0), 2, "ends within record 1 of 2"),
        (raw_record(0)[:-1], 1, "ends within record 1 of 1"),
        (raw_record(0) + raw_record(1), 1, "bytes follow"),
        (raw_record(0) + b"\0", 1, "bytes follow"),
        (raw_record(1), 1, "offset"),
        (raw_record(0) + raw_record(0), 2, "offset"),
        (raw_record(-1), 1, "offset"),
        (varint(5) + raw_body(0), 1, "shorter than an empty record"),
        (varint(-1) + raw_body(0), 1, "shorter than an empty record"),
        (varint(len(raw_body(0)) + 1) + raw_body(0) + b"\0", 1, "length does not match"),
        (varint(len(raw_body(0, value=b"four")) - 1) + raw_body(0, value=b"four"), 1, "length does not match"),
        (sized(b"\0\0\0" + varint(-2) + b"\x01\0"), 1, "negative length"),
        (sized(b"\0\0\0\x01\x01" + varint(-1)), 1, "number of headers"),
        (sized(b"\0\0\0\x01\x01" + varint((1 << 31) - 1)), 1, "number of headers"),
        (sized(b"\0\0\0\x01\x01" + varint(1) + varint(-1) + b"\x01"), 1, "no name"),
        (sized(b"\0\0\0" + folded(1 << 32) + b"\x01\0"), 1, "too many bytes"),
        (sized(b"\0" + folded(1 << 64) + b"\0\x01\x01\0"), 1, "too many bytes"),
        (sized(b"\0" + b"\x80" * 12 + b"\0\0\x01\x01\0"), 1, "too many bytes"),
        (folded((1 << 32) - 2), 1, "ends within record 1"),
    ],
)
def test_malformed_records_are_refused_with_a_reason(
    kernel: Kernel, payload: bytes, count: int, complaint: str
) -> None:
    result = scanned(raw_batch(payload, count))
    assert result.code is ErrorCode.INVALID_RECORD
    assert complaint in result.message


def test_the_largest_timestamp_is_that_of_the_records(kernel: Kernel) -> None:
    assert scanned(build_batch(RECORDS)) == Result(largest=5000)
    none = raw_batch(raw_record(0, timestamp_delta=-1 - 1000), 1, base_timestamp=1000)
    assert scanned(none) == Result(largest=-1)


def test_records_with_timestamps_out_of_range_are_listed(kernel: Kernel) -> None:
    assert scanned(build_batch([NewRecord(None, b"", time) for time in (0, 7, -1)])) == Result(largest=7)
    batch = build_batch([NewRecord(None, b"", time) for time in (10, 4, 5, -1, 3)])
    errors = scanned(batch, cuts=(9, 20), lowest=5).errors
    assert [(error.record_index, error.code) for error in errors] == [
        (1, ErrorCode.INVALID_TIMESTAMP),
        (4, ErrorCode.INVALID_TIMESTAMP),
    ]


def test_a_timestamp_beyond_64_bits_is_out_of_range(kernel: Kernel) -> None:
    beyond = raw_batch(raw_record(0, timestamp_delta=1), 1, base_timestamp=INT64_MAX)
    assert [error.code for error in scanned(beyond).errors] == [ErrorCode.INVALID_TIMESTAMP]


def test_records_without_key_are_listed_where_keys_are_needed(kernel: Kernel) -> None:
    batch = build_batch([NewRecord(b"k", b"", 9), NewRecord(None, b"", 1), NewRecord(b"", b"", 9)])
    errors = scanned(batch, lowest=5, keys=True).errors
    assert [(error.record_index, error.code) for error in errors] == [(1, ErrorCode.INVALID_RECORD)]


def test_the_list_of_errors_is_bounded(kernel: Kernel) -> None:
    batch = build_batch([NewRecord(None, b"", 0) for _ in range(RECORD_ERRORS_MAX + 50)])
    header = parse_header(batch)
    scan = RecordScan(header, lowest_ms=5)
    for byte in bytes(batch[HEADER_SIZE:]):
        scan.feed(bytes([byte]))
    assert scan.is_full
    assert [error.record_index for error in scan.errors] == list(range(RECORD_ERRORS_MAX))


@settings(max_examples=300, deadline=None)
@given(payload=st.binary(max_size=200), count=st.integers(0, 1 << 31))
def test_the_compiled_loop_never_reads_behind_its_piece(payload: bytes, count: int) -> None:
    header = parse_header(raw_batch(b"", 1))._replace(record_count=count)
    scan = RecordScan(header)
    with suppress(KafkaError):
        scan.feed(MEMORY.hold(payload))


MEMORY = GuardedMemory(4096)
