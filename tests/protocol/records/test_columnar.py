"""Columns equal the records of the reader and are refused where it refuses, compiled or not, for any bytes."""

from __future__ import annotations

import mmap
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records import columnar, columnar_numba, columnar_numpy
from raylog.protocol.records.batch import HEADER_SIZE, OFFSET_END, MalformedBatch, parse_header, verify_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.columnar import RECORD_COLUMNS, Columns, Kernel, Slices, decode_columns
from raylog.protocol.records.compression import Buffer, Codec
from raylog.protocol.records.reader import read_batches, read_records
from tests.protocol.records.raw_batches import (
    CONTROL,
    LOG_APPEND_TIME,
    GuardedMemory,
    raw_batch,
    raw_body,
    raw_record,
    sized,
    varint,
)
from tests.support.forms import by_form

KERNELS: dict[str, Kernel] = {"numba": columnar_numba.compiled_kernel(), "numpy": columnar_numpy}
GUARDED = GuardedMemory(1 << 20)
DECOMPRESSED_BYTES_MAX = 1 << 20
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)

Row = tuple[Any, ...]
"""What was asked for of one record, in the order of RECORD_COLUMNS."""


def rows_of(columns: Columns) -> list[Row]:
    """Through Python objects, one by one."""
    data = columns.data.tobytes()

    def pick(slices: Slices, row: int) -> bytes | None:
        start, length = int(slices.start[row]), int(slices.length[row])
        assert length == -1 or 0 <= start <= start + length <= len(data)
        return None if length == -1 else data[start : start + length]

    shown: list[list[Any]] = []
    for slices in (columns.key, columns.value):
        if slices is not None:
            assert len(slices.start) == len(slices.length)
            shown.append([pick(slices, row) for row in range(len(slices.start))])
    numbers = (columns.offset, columns.timestamp_ms, columns.timestamp_type)
    shown.extend(each.tolist() for each in numbers if each is not None)
    if columns.headers is not None:
        first, name, value = columns.headers.first, columns.headers.name, columns.headers.value
        assert first[0] == 0
        assert first[-1] == len(name.start) == len(value.start)
        headers = [
            [((pick(name, at) or b"").decode(errors="replace"), pick(value, at)) for at in range(start, end)]
            for start, end in pairwise(first)
        ]
        shown.append(headers)
    assert {len(column) for column in shown} <= {columns.row_count}
    return list(zip(*shown, strict=True)) if shown else [()] * columns.row_count


def oracle(data: bytes, columns: Collection[str], from_offset: int, end_offset: int) -> Iterator[Row]:
    """The same by the reader. What 64 bits cannot hold is refused here, as a column cannot say it."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = parse_header(data, position)
        if header.size_bytes > len(data) - position:
            return
        if not header.is_control and header.next_offset > from_offset and header.base_offset < end_offset:
            verify_crc(data, position, header)
            records = read_records(data, position, header, max_bytes=DECOMPRESSED_BYTES_MAX)
            for record in records:
                delta = 0 if header.timestamp_type else record.timestamp_ms - header.base_timestamp
                if not (-(1 << 63) < delta < 1 << 63 and -(1 << 63) <= record.timestamp_ms < 1 << 63):
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
            if header.next_offset > OFFSET_END:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
            for record in records:
                if from_offset <= record.offset < end_offset:
                    row = {
                        "key": record.key,
                        "value": record.value,
                        "offset": record.offset,
                        "timestamp": record.timestamp_ms,
                        "timestampType": record.timestamp_type,
                        "headers": list(record.headers),
                    }
                    yield tuple(row[name] for name in RECORD_COLUMNS if name in columns)
        position += header.size_bytes


def outcome(rows: Callable[[], Iterator[Row]]) -> tuple[list[Row], ErrorCode | None]:
    """The rows, and how they ended."""
    seen: list[Row] = []
    try:
        for row in rows():
            seen.append(row)  # noqa: PERF402  what came before an error counts
    except KafkaError as error:
        return seen, error.code
    return seen, None


def decoded(
    data: Buffer,
    columns: Collection[str] = RECORD_COLUMNS,
    *,
    from_offset: int = 0,
    end_offset: int = OFFSET_END,
    target_bytes: int = 1 << 20,
    kernel: Kernel,
) -> Iterator[Row]:
    for each in decode_columns(
        data,
        columns,
        from_offset=from_offset,
        end_offset=end_offset,
        target_bytes=target_bytes,
        max_bytes=DECOMPRESSED_BYTES_MAX,
        kernel=kernel,
    ):
        assert each.row_count
        yield from rows_of(each)


def agree(
    data: bytes,
    columns: Collection[str] = RECORD_COLUMNS,
    *,
    from_offset: int = 0,
    end_offset: int = OFFSET_END,
    target_bytes: int = 1 << 20,
) -> ErrorCode | None:
    """Both kernels give the reader's rows and end as it does. How: None or the code of the refusal."""
    wanted, code = outcome(lambda: oracle(data, columns, from_offset, end_offset))
    for name, kernel in KERNELS.items():
        rows, ending = outcome(
            lambda kernel=kernel: decoded(  # type: ignore[misc]
                GUARDED.hold(data),
                columns,
                from_offset=from_offset,
                end_offset=end_offset,
                target_bytes=target_bytes,
                kernel=kernel,
            )
        )
        assert ending is code, name
        # Of a group of batches with a bad one among them nothing is shown.
        assert rows == (wanted[: len(rows)] if code else wanted), name
    return code


def refused(data: bytes) -> bool:
    """CORRUPT_MESSAGE is what becomes of it, whichever columns are asked for."""
    return {agree(data), agree(data, ("offset",))} == {ErrorCode.CORRUPT_MESSAGE}


SMALL = st.one_of(st.none(), st.binary(max_size=30), st.binary(min_size=120, max_size=140))
TIMES = st.one_of(st.integers(-3, 3), st.integers(-(1 << 40), 1 << 45))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A record set as a log may have it: every codec, gaps between and within batches, control batches, empty ones."""
    data = bytearray()
    offset = draw(st.one_of(st.integers(0, 20), st.integers(0, 1 << 60)))
    for _ in range(draw(st.integers(0, 4))):
        offset += draw(st.integers(0, 3))
        delta, records, times = -1, [], [0]
        for _ in range(draw(st.integers(0, 6))):
            delta += draw(st.integers(1, 3))
            times.append(draw(TIMES))
            headers = draw(st.lists(st.tuples(st.binary(max_size=4), SMALL), max_size=3))
            records.append(
                raw_record(delta, timestamp_delta=times[-1], key=draw(SMALL), value=draw(SMALL), headers=headers)
            )
        last = max(delta, 0) + draw(st.integers(0, 2))
        data += raw_batch(
            b"".join(records),
            len(records),
            base_offset=offset,
            last_offset_delta=last,
            base_timestamp=draw(TIMES),
            max_timestamp=max(times),
            attributes=draw(st.sampled_from([0, 0, 0, LOG_APPEND_TIME, CONTROL])),
            codec=draw(st.sampled_from(list(Codec))),
        )
        offset += last + 1
    return bytes(data)


@settings(max_examples=300, deadline=None)
@given(
    data=batches(),
    columns=st.sets(st.sampled_from(RECORD_COLUMNS)),
    bounds=st.tuples(st.integers(-1, 40), st.integers(0, 40)),
    cut=st.one_of(st.just(0), st.integers(0, 80)),
    target_bytes=st.sampled_from([1, 200, 1 << 20]),
)
def test_columns_equal_the_records_of_the_reader(
    data: bytes, columns: set[str], bounds: tuple[int, int], cut: int, target_bytes: int
) -> None:
    base_offset = parse_header(data).base_offset if data else 0
    whole = data[: len(data) - cut]
    code = agree(
        whole,
        columns,
        from_offset=base_offset + bounds[0] - 1,
        end_offset=base_offset + bounds[1],
        target_bytes=target_bytes,
    )
    assert code is None
    assert agree(whole, columns, target_bytes=target_bytes) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            NewRecord,
            key=SMALL,
            value=SMALL,
            timestamp_ms=st.integers(-1, 1 << 45),
            headers=st.lists(st.tuples(st.text(max_size=5), SMALL), max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=90,
    ),
    st.sampled_from(list(Codec)),
    st.integers(0, 1),
)
def test_columns_equal_the_input_of_the_builder(records: list[NewRecord], codec: Codec, timestamp_type: int) -> None:
    data = build_batch(records, codec=codec, base_offset=7, timestamp_type=timestamp_type)
    latest = max(record.timestamp_ms for record in records)
    for kernel in KERNELS.values():
        assert list(decoded(data, kernel=kernel)) == [
            (
                record.key,
                record.value,
                7 + number,
                latest if timestamp_type else record.timestamp_ms,
                timestamp_type,
                list(record.headers),
            )
            for number, record in enumerate(records)
        ]


INTERESTING = st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF])
HOSTILE = st.sampled_from(
    [
        varint(number)
        for bits in (6, 7, 13, 31, 32, 62, 63, 64, 69)
        for number in ((1 << bits) - 1, 1 << bits, -(1 << bits), -(1 << bits) - 1)
    ]
    + [b"\x80\x00", b"\x81\x80\x80\x00", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x7f", b"\xff" * 10]
)


def spoilt(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with some of them changed, removed, inserted or duplicated."""
    changed = bytearray(data)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        at = draw(st.integers(0, len(changed)))
        match draw(st.sampled_from(["set", "set", "set", "cut", "insert", "hostile", "double"])):
            case "set":
                changed[at : at + 1] = bytes((draw(st.one_of(INTERESTING, st.integers(0, 255))),))
            case "cut":
                del changed[at : at + draw(st.integers(1, 9))]
            case "insert":
                changed[at:at] = bytes((draw(INTERESTING),))
            case "hostile":
                changed[at : at + draw(st.integers(0, 2))] = draw(HOSTILE)
            case _:
                changed += changed[at:]
    return bytes(changed)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A batch spoilt within a record, whose length is made true again, or across records, under a true checksum."""
    bodies, delta = [], -1
    for _ in range(draw(st.integers(1, 4))):
        delta += draw(st.integers(1, 90))
        bodies.append(
            raw_body(
                delta,
                timestamp_delta=draw(TIMES),
                key=draw(st.sampled_from([None, b"", b"key"])),
                value=draw(st.sampled_from([None, b"", b"v", b"value" * 30])),
                headers=[(b"name", b"x"), (b"", None)][: draw(st.integers(0, 2))],
            )
        )
    if draw(st.booleans()):
        at = draw(st.integers(0, len(bodies) - 1))
        bodies[at] = spoilt(draw, bodies[at])
        payload = b"".join(sized(body) for body in bodies)
    else:
        payload = spoilt(draw, b"".join(sized(body) for body in bodies))
    return raw_batch(
        payload,
        max(0, len(bodies) + draw(st.sampled_from([0] * 12 + [-1, 1, 2]))),
        base_offset=draw(st.sampled_from([0, 5, OFFSET_END - 400])),
        last_offset_delta=delta + draw(st.sampled_from([0, 0, 300])),
        base_timestamp=draw(st.sampled_from([0] * 6 + [(1 << 63) - 1, -(1 << 63)])),
        max_timestamp=draw(TIMES),
        attributes=draw(st.sampled_from([0, 0, LOG_APPEND_TIME])),
        codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4])),
    )


@settings(max_examples=by_form(350, quick=200, long=20_000), deadline=None)
@given(data=mutated(), columns=st.sampled_from([RECORD_COLUMNS, (), ("offset",), ("value", "headers")]))
def test_inconsistent_batches_with_a_valid_checksum_are_refused_as_by_the_reader(
    data: bytes, columns: Sequence[str]
) -> None:
    agree(data, columns)
    good = raw_batch(raw_record(value=b"good" * 9), 1)
    agree(good + data + good, columns)


FIELDS = ("length", "timestamp", "offset", "key", "value", "headers", "header name", "header value")
HOSTILE_NUMBERS = [
    *(sign * (1 << bits) + more for bits in (31, 32, 61, 62, 63) for sign in (1, -1) for more in (-1, 0, 1)),
    *(-2, -3, 1 << 64, (1 << 65) + 4, (1 << 68) + 1),
]


def with_field(field: str, raw: bytes, *, bytes_follow: bool = True, attributes: int = 0) -> bytes:
    """A batch of one record that has this varint, byte for byte, in the place of one field.

    Without `bytes_follow`, there are none of those whose number the field says, and the rest is as it should be.
    """
    fields = {
        "timestamp": (b"\0", b""),
        "offset": (b"\0", b""),
        "key": (b"\x02", b"k"),
        "value": (b"\x02", b"v"),
        "headers": (b"\x02", b""),
        "header name": (b"\x02", b"n"),
        "header value": (b"\x02", b"h"),
    }
    if field != "length":
        fields[field] = raw, fields[field][1] if bytes_follow else b""
    body = b"\0" + b"".join(number + data for number, data in fields.values())
    payload = (raw if field == "length" else varint(len(body))) + body + (bytes(40) if bytes_follow else b"")
    return raw_batch(payload, 1, last_offset_delta=9, base_timestamp=5, attributes=attributes)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", HOSTILE_NUMBERS)
def test_a_hostile_number_in_any_field_is_refused(field: str, number: int) -> None:
    assert refused(with_field(field, varint(number)))
    if field != "timestamp":
        assert refused(with_field(field, varint(number), bytes_follow=False))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("raw", [b"\x80" * 9, b"\x80" * 10, b"\xff" * 10, b"\xff" * 11, b"\x82" + b"\x80" * 9 + b"\0"])
@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
def test_a_varint_of_more_than_ten_bytes_is_refused(field: str, raw: bytes, attributes: int) -> None:
    for bytes_follow in (True, False):
        data = with_field(field, raw, bytes_follow=bytes_follow, attributes=attributes)
        assert refused(data) or (len(raw) == 9 and agree(data) is None)  # nine may be ended by the byte behind them


@pytest.mark.parametrize("position", range(6))
def test_varints_may_be_longer_than_necessary(position: int) -> None:
    """No client writes them so, and every client reads them."""
    for size in range(2, 11):
        fields = [b"\0", b"\0", b"\x02k", b"\x02v", b"\0"]
        if position:
            number, rest = fields[position - 1][0], fields[position - 1][1:]
            fields[position - 1] = padded(number, size) + rest
        body = b"\0" + b"".join(fields)
        length = padded(2 * len(body), size) if position == 0 else varint(len(body))
        data = raw_batch(length + body, 1)
        assert agree(data) is None
        assert [row[:2] for row in oracle(data, RECORD_COLUMNS, 0, 9)] == [(b"k", b"v")]


def padded(number: int, size: int) -> bytes:
    return bytes([number | 0x80, *[0x80] * (size - 2), 0])


@pytest.mark.parametrize(
    ("base_timestamp", "delta", "fits"),
    [
        ((1 << 63) - 1, 0, True),
        ((1 << 63) - 1, 1, False),
        ((1 << 63) - 1, -((1 << 63) - 1), True),
        (-(1 << 63), 0, True),
        (-(1 << 63), -1, False),
        (-(1 << 63), (1 << 63) - 1, True),
        (0, (1 << 63) - 1, True),
        (0, -(1 << 63), False),  # stands for everything that has more than 64 bits
        (-1, 1 << 63, False),
        ((1 << 63) - 1, -(1 << 64), False),
    ],
)
def test_timestamps_of_64_bits_are_read(base_timestamp: int, delta: int, *, fits: bool) -> None:
    payload = raw_record(timestamp_delta=delta)
    code = agree(raw_batch(payload, 1, base_timestamp=base_timestamp))
    assert code is (None if fits else ErrorCode.CORRUPT_MESSAGE)
    assert agree(raw_batch(payload, 1, base_timestamp=base_timestamp, attributes=LOG_APPEND_TIME)) is None


def test_offsets_of_64_bits_are_read() -> None:
    assert agree(raw_batch(raw_record(), 1, base_offset=OFFSET_END - 1)) is None
    two = raw_record(0) + raw_record(1)
    assert refused(raw_batch(two, 2, base_offset=OFFSET_END - 1))
    assert agree(raw_batch(raw_record(), 1, base_offset=-5), from_offset=-9) is None
    assert agree(raw_batch(raw_record(), 1, base_offset=-(1 << 63)), from_offset=-(1 << 63)) is None


GOOD = raw_record(key=b"k", value=b"v" * 20, headers=[(b"n", b"h")])


@pytest.mark.parametrize("size", range(len(GOOD)))
def test_every_truncation_with_a_valid_checksum_is_refused(size: int) -> None:
    assert refused(raw_batch(GOOD[:size], 1))
    shorter = varint(size - 1) + GOOD[1:]
    assert refused(raw_batch(shorter, 1))


@pytest.mark.parametrize(
    ("payload", "count", "last_offset_delta"),
    [
        (GOOD + b"\0", 1, 0),  # a byte behind the last record
        (sized(raw_body() + raw_record(1)), 2, 1),  # a record inside another
        (sized(raw_body()[:-1] + b"\x04\x01\x02n\x01"), 1, 0),  # a header whose name is null
        (sized(raw_body()[:-1] + b"\x02\x01\x02v"), 1, 0),
        (GOOD, 2, 1),  # fewer records than said
        (GOOD + GOOD, 2, 1),  # an offset twice
        (raw_record(1) + raw_record(0), 2, 1),  # offsets that fall
        (raw_record(2), 1, 1),  # an offset behind the batch's last
        (raw_record(-1), 1, 1),
        (GOOD, (1 << 31) - 1, (1 << 31) - 1),  # more records than bytes
        (b"", 1, 0),
        (bytes(7), 1, 0),  # a record of no bytes
    ],
)
def test_batches_with_inconsistent_headers_are_refused(payload: bytes, count: int, last_offset_delta: int) -> None:
    assert refused(raw_batch(payload, count, last_offset_delta=last_offset_delta))


def test_the_number_of_headers_is_limited_by_the_bytes() -> None:
    for count in (1, 63, 64, 1000):
        headers = [(b"", None)] * count
        assert agree(raw_batch(raw_record(headers=headers), 1)) is None
    body = b"\0\0\0\x01\x01" + varint(3) + b"\0\x01" * 2
    assert refused(raw_batch(varint(len(body)) + body, 1))


@every_kernel
def test_the_error_names_the_batch(kernel: Kernel) -> None:
    good = [raw_batch(GOOD, 1, base_offset=offset) for offset in (40, 42)]
    bad = raw_batch(GOOD + b"\0", 1, base_offset=41)
    with pytest.raises(KafkaError, match="the batch of offsets 41 to 41 is malformed"):
        list(decode_columns(good[0] + bad + good[1], ("offset",), kernel=kernel))


@every_kernel
def test_checksums_are_verified_unless_disabled(kernel: Kernel) -> None:
    broken = bytearray(raw_batch(GOOD, 1))
    broken[-1] ^= 1
    with pytest.raises(KafkaError, match="checksum") as caught:
        list(decode_columns(broken, RECORD_COLUMNS, kernel=kernel))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    (columns,) = decode_columns(broken, RECORD_COLUMNS, kernel=kernel, check_crcs=False)
    assert columns.row_count == 1


@every_kernel
def test_batches_outside_the_bounds_are_not_opened(kernel: Kernel) -> None:
    broken = bytes(21) + b"\xff"
    data = b"".join(
        raw_batch(GOOD if offset in (3, 5) else broken, 1, base_offset=offset, attributes=CONTROL if offset == 4 else 0)
        for offset in range(2, 7)
    )
    (columns,) = decode_columns(data, ("offset",), from_offset=3, end_offset=6, kernel=kernel)
    assert columns.offset is not None
    assert columns.offset.tolist() == [3, 5]


@every_kernel
def test_old_message_formats_have_their_own_error(kernel: Kernel) -> None:
    data = bytearray(raw_batch(GOOD, 1) * 2)
    data[len(data) // 2 + 16] = 1
    with pytest.raises(KafkaError) as caught:
        list(decode_columns(data, RECORD_COLUMNS, kernel=kernel))
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@every_kernel
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_may_not_decompress_beyond_the_limit(kernel: Kernel, codec: Codec) -> None:
    data = raw_batch(raw_record(value=bytes(100_000)), 1, codec=codec)
    with pytest.raises(KafkaError) as caught:
        list(decode_columns(data, RECORD_COLUMNS, kernel=kernel, max_bytes=90_000))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_batches_are_decoded_together_up_to_the_target_size() -> None:
    batch = raw_batch(GOOD, 1)
    sizes = [columns.row_count for columns in decode_columns(batch * 10, ("offset",), target_bytes=4 * len(batch))]
    assert sizes == [4, 4, 2]
    packed = raw_batch(raw_record(value=bytes(1000)), 1, codec=Codec.ZSTD)
    assert [each.row_count for each in decode_columns(packed * 3, ("offset",), target_bytes=2100)] == [2, 1]


@every_kernel
def test_uncompressed_batches_are_decoded_in_place(kernel: Kernel) -> None:
    data = bytearray(raw_batch(GOOD, 1) * 2)
    (columns,) = decode_columns(data, ("value",), kernel=kernel)
    assert np.shares_memory(columns.data, np.frombuffer(data, np.uint8))
    assert not columns.data.flags.writeable


class Watched:
    """A kernel that records the columns it was asked for."""

    def __init__(self, kernel: Kernel) -> None:
        self.calls: list[str] = []
        self.sizes: tuple[int, ...] = ()
        self._kernel = kernel

    def scan(self, *arguments: Any) -> int:
        self.calls.append("scan")
        self.sizes = tuple(len(output) for output in arguments[4:])
        return self._kernel.scan(*arguments)

    def fill_headers(self, *arguments: Any) -> int:
        self.calls.append("fill_headers")
        return self._kernel.fill_headers(*arguments)

    def fill_views(self, *arguments: Any) -> None:
        self.calls.append("fill_views")
        self._kernel.fill_views(*arguments)


def test_only_requested_columns_are_built_by_one_call() -> None:
    data = raw_batch(raw_record(0, key=b"k", value=b"v", headers=[(b"n", b"h")]) + raw_record(1), 2) * 3
    watched = Watched(columnar_numpy)
    (columns,) = decode_columns(data, ("offset",), kernel=watched)
    assert (watched.calls, watched.sizes) == (["scan"], (6, 0, 0, 0, 0, 0, 0, 0, 0))
    assert (columns.key, columns.value, columns.headers, columns.timestamp_ms, columns.timestamp_type) == (None,) * 5
    watched = Watched(columnar_numpy)
    list(decode_columns(data, ("timestampType", "headers"), kernel=watched))
    assert (watched.calls, watched.sizes) == (["scan", "fill_headers"], (0, 0, 6, 0, 0, 0, 0, 6, 6))


@every_kernel
def test_headers_that_changed_since_they_were_counted_are_refused(kernel: Kernel) -> None:
    def filled(data: bytes, start: int = 0) -> int:
        outputs = [np.empty(2, np.int32) for _ in range(4)]
        array = np.frombuffer(GUARDED.hold(data), np.uint8)
        return kernel.fill_headers(array, np.array([start], np.int32), np.array([0, 2], np.int32), *outputs)

    assert filled(b"\x02n\x02v\x02n\x01") == 2
    hostile = [
        b"\x02n\x02v\x02n\x02",
        b"\x02n\x02v\x01",
        b"\x02n\x02v",
        b"\x02n\x03",
        b"\xff" * 20,
        b"\x02n" + varint(1 << 62),
    ]
    for data in hostile:
        assert filled(data) == -1
    assert filled(b"\x02n", start=2) == -1


@settings(max_examples=100, deadline=None)
@given(st.lists(SMALL, max_size=40))
@example([bytes(range(size)) for size in range(15)] + [None])
def test_views_are_those_of_arrow(strings: list[bytes | None]) -> None:
    data = b"".join(string or b"" for string in strings)
    array = np.frombuffer(GUARDED.hold(data), np.uint8)
    lengths = np.array([-1 if string is None else len(string) for string in strings], np.int32)
    starts = (np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)).astype(np.int32)
    wanted = b"".join(
        bytes(16)
        if string is None
        else struct.pack("<i12s", len(string), string)
        if len(string) <= 12
        else struct.pack("<i4sii", len(string), string[:4], 0, start)
        for string, start in zip(strings, starts.tolist(), strict=True)
    )
    for kernel in KERNELS.values():
        views = np.full((len(strings), 2), 0xAA, np.uint64)
        kernel.fill_views(array, starts, lengths, views)
        assert views.tobytes() == wanted


def test_a_buffer_may_exceed_2_gib(tmp_path: Path) -> None:
    """Two batches with control batches of 2 GiB before and between them, in a file that is mostly a hole."""
    good = raw_batch(raw_record(value=b"v" * 20), 1)
    control = bytearray(raw_batch(b"", 0, attributes=CONTROL))
    struct.pack_into(">i", control, 8, (1 << 31) - 1)
    stride = (1 << 31) - 1 + 12 + len(good)
    path = tmp_path / "hole"
    with path.open("wb") as file:
        for number in range(2):
            file.seek(number * stride)
            file.write(good)
            file.write(control)
        file.seek(2 * stride)
        file.write(good)
    with path.open("rb") as log, mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for kernel in KERNELS.values():
            values = []
            for columns in decode_columns(memoryview(mapped), ("value",), kernel=kernel):
                assert len(columns.data) < 1000
                values += rows_of(columns)
                del columns
            assert values == [(b"v" * 20,)] * 3
    path.unlink()


def test_columns_and_sizes_are_validated() -> None:
    with pytest.raises(ValueError, match=r"\['topic'\]: must be among key, value"):
        list(decode_columns(b"", ("offset", "topic")))
    with pytest.raises(ValueError, match="below 2 GiB"):
        list(decode_columns(b"", ("offset",), max_bytes=1 << 31))
    assert not list(decode_columns(b"", RECORD_COLUMNS))


@every_kernel
def test_no_records_give_empty_columns(kernel: Kernel) -> None:
    assert not list(decode_columns(raw_batch(b"", 0), RECORD_COLUMNS, kernel=kernel))
    gap = raw_batch(raw_record(0) + raw_record(9), 2, last_offset_delta=9)
    assert not list(decode_columns(gap, RECORD_COLUMNS, from_offset=2, end_offset=8, kernel=kernel))


def test_numba_is_imported_on_first_use_only() -> None:
    program = """
import sys
from raylog.protocol.records import arrow, columnar, columnar_numba
from raylog.protocol.records.builder import NewRecord, build_batch
list(columnar.decode_columns(b"", ("offset",)))
assert "numba" not in sys.modules
(columns,) = columnar.decode_columns(build_batch([NewRecord(None, None, 0)]), ("offset",))
assert "numba" in sys.modules
assert columns.kernel is columnar_numba.compiled_kernel()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def asked_anew() -> Iterator[None]:
    """What was found out about numba is forgotten, before and after."""
    columnar.default_kernel.cache_clear()
    columnar_numba.compiled_kernel.cache_clear()
    yield
    columnar.default_kernel.cache_clear()
    columnar_numba.compiled_kernel.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_without_numba_numpy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert columnar.default_kernel() is columnar_numpy
    (columns,) = decode_columns(raw_batch(GOOD, 1), ("offset",))
    assert columns.kernel is columnar_numpy


@pytest.mark.usefixtures("asked_anew")
def test_numba_without_compilation_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    assert columnar.default_kernel() is columnar_numpy


@pytest.mark.slow
@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize("trouble", ["nowhere to keep it", "empty files", "garbage", "a full disk"])
def test_errors_of_numbas_cache_are_tolerated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: str) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    if trouble == "nowhere to keep it":
        monkeypatch.setattr("numba.config.CACHE_DIR", "/proc/none")
        monkeypatch.setattr("numba.config.CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
    elif trouble == "a full disk":

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", refuse)
    else:
        columnar_numba.compiled_kernel()
        kept = list(tmp_path.rglob("*.nbi" if trouble == "empty files" else "*.nbc"))
        assert kept
        for path in kept:
            path.write_bytes(b"" if trouble == "empty files" else b"garbage")
        columnar_numba.compiled_kernel.cache_clear()
    kernel = columnar_numba.compiled_kernel()
    assert [row[2] for row in decoded(raw_batch(GOOD, 1), kernel=kernel)] == [0]


SOUND = [build_batch([NewRecord(b"k", b"v%d" % at, 5)], codec=Codec.NONE) for at in range(3)]
BAD = {
    "content": raw_batch(raw_record(0)[:-1] + b"\x05", 1),
    "count": raw_batch(raw_record(0), 1000, last_offset_delta=0),
    "compression": raw_batch(b"garbage", 1, attributes=Codec.GZIP),
}


class TestMalformedBatches:
    """One batch in the middle has records that cannot be decoded: the batches around it can."""

    @staticmethod
    def record_set(bad: bytes) -> bytes:
        batches = [SOUND[0], SOUND[1], bad, SOUND[2]]
        return b"".join(struct.pack(">q", 10 + at) + bytes(batch[8:]) for at, batch in enumerate(batches))

    @every_kernel
    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    @pytest.mark.parametrize("target_bytes", [1, 1 << 20], ids=["alone", "in a group"])
    def test_columns_skip_it(self, bad: bytes, target_bytes: int, kernel: Kernel) -> None:
        skipped: list[MalformedBatch] = []
        found: list[Row] = []
        for each in decode_columns(
            self.record_set(bad),
            ("value", "offset"),
            target_bytes=target_bytes,
            check_crcs=False,
            kernel=kernel,
            on_malformed=skipped.append,
        ):
            found += rows_of(each)
        assert found == [(b"v0", 10), (b"v1", 11), (b"v2", 13)]
        assert [(error.base_offset, error.next_offset) for error in skipped] == [(12, 13)]

    @every_kernel
    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    def test_an_error_names_its_offsets(self, bad: bytes, kernel: Kernel) -> None:
        with pytest.raises(MalformedBatch, match="the batch of offsets 12 to 12 is malformed") as caught:
            list(decode_columns(self.record_set(bad), (), check_crcs=False, kernel=kernel))
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.base_offset, again.next_offset, str(again)) == (12, 13, str(caught.value))

    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    def test_rows_before_it_are_read_and_it_is_skipped_on_request(self, bad: bytes) -> None:
        seen: list[int] = []
        with pytest.raises(MalformedBatch, match="the batch of offsets 12 to 12 is malformed"):
            seen.extend(record.offset for record in read_batches(self.record_set(bad)))
        skipped: list[MalformedBatch] = []
        found = [record.offset for record in read_batches(self.record_set(bad), on_malformed=skipped.append)]
        assert (found, len(skipped)) == ([10, 11, 13], 1)
