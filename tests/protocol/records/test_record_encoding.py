"""The encoders in C and in Python write the same bytes, and refuse the same input."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.protocol.records import record_encoding as encoding
from raylog.protocol.records.arrow_encoding import column_of, int64_of
from raylog.protocol.records.batch import HEADER_SIZE, parse_header, verify_crc
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_records

pytestmark = pytest.mark.skipif(encoding.compiled is None, reason="raylog was installed without a compiler")

INT64 = st.integers(-(1 << 62), (1 << 62) - 1)
FIELD = st.none() | st.binary(max_size=300)
KINDS = (pa.binary(), pa.large_binary())


@given(INT64, st.integers(0, 1 << 31), FIELD, FIELD, st.none() | st.binary(min_size=1, max_size=100))
def test_one_record(delta: int, offset: int, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
    bodies = bytearray(b"before"), bytearray(b"before")
    encoding.compiled.append_record(bodies[0], delta, offset, key, value, headers)
    encoding.append_record_in_python(bodies[1], delta, offset, key, value, headers)
    assert bodies[0] == bodies[1]


def test_any_buffer_can_be_a_field() -> None:
    bodies = bytearray(), bytearray()
    encoding.compiled.append_record(bodies[0], 0, 0, bytearray(b"key"), memoryview(b"-value-")[1:6], None)
    encoding.append_record_in_python(bodies[1], 0, 0, b"key", b"value", None)
    assert bodies[0] == bodies[1]
    with pytest.raises(TypeError):
        encoding.compiled.append_record(bodies[0], 0, 0, "key", b"", None)


@pytest.mark.parametrize("shorten", [encoding.shorten, encoding.shorten_in_python])
def test_a_body_is_shortened_for_the_next_batch(shorten: Callable[[bytearray, int], None]) -> None:
    body = bytearray(b"header")
    for offset in range(100):
        encoding.append_record(body, 0, offset, None, b"x" * 100, None)
    with memoryview(body) as in_use:
        before = bytes(in_use)
        with pytest.raises(BufferError):
            shorten(body, 6)
        assert body == before
    shorten(body, 6)
    assert body == b"header"
    encoding.append_record(body, 0, 0, None, b"value", None)
    expected = bytearray(b"header")
    encoding.append_record_in_python(expected, 0, 0, None, b"value", None)
    assert body == expected


def test_a_body_keeps_its_memory() -> None:
    body = bytearray(b"header")
    encoding.append_record(body, 0, 0, None, b"x" * 100_000, None)
    memory = body.__sizeof__()
    encoding.compiled.shorten(body, 6)
    encoding.append_record(body, 0, 0, None, b"x", None)
    assert body.__sizeof__() == memory
    body += bytes(200_000)
    assert body.startswith(b"header")
    for size in (-1, len(body) + 1):
        with pytest.raises(ValueError, match="shorter"):
            encoding.compiled.shorten(body, size)
    with pytest.raises(TypeError):
        encoding.compiled.shorten(b"x", 0)


@given(st.binary(max_size=40))
def test_hashes(data: bytes) -> None:
    assert encoding.compiled.murmur2(data) == encoding.murmur2_in_python(data)


@given(st.data())
def test_columns(data: st.DataObject) -> None:
    """With nulls, slices, both widths of offsets, any order, and any limit."""
    rows = data.draw(st.integers(1, 20))
    skipped = data.draw(st.integers(0, 9))

    def column() -> encoding.Column | None:
        values = data.draw(st.lists(FIELD, min_size=skipped + rows, max_size=skipped + rows))
        kind = data.draw(st.sampled_from((*KINDS, pa.binary(3), None)))
        if kind is None:
            return None
        if kind == pa.binary(3):
            values = [None if value is None else value[:3].ljust(3) for value in values]
        return column_of(pa.array(values, kind)[skipped:])

    keys, values, headers = column(), column(), column()
    times = data.draw(st.none() | st.lists(INT64, min_size=rows, max_size=rows))
    timestamps = None if times is None else array("q", times)
    order = data.draw(st.none() | st.lists(st.integers(0, rows - 1), min_size=1, max_size=30))
    end = rows if order is None else len(order)
    start = data.draw(st.integers(0, end - 1))
    base = data.draw(st.integers(-1000, 1000))
    limit = data.draw(st.integers(0, 3000))
    given_order = None if order is None else array("q", order)
    bodies = bytearray(b"before"), bytearray(b"before")
    ends = [
        append(body, start, end, given_order, rows, keys, values, headers, timestamps, base, limit)
        for append, body in zip(
            (encoding.compiled.append_columns, encoding.append_columns_in_python), bodies, strict=True
        )
    ]
    assert ends[0] == ends[1]
    assert bodies[0] == bodies[1]


@given(st.lists(FIELD, min_size=1, max_size=50), st.integers(1, 100))
def test_partitions(values: list[bytes | None], count: int) -> None:
    keys = column_of(pa.array(values, pa.binary()))
    found = array("q", [0] * len(values)), array("q", [0] * len(values))
    encoding.compiled.partitions_of(keys, len(values), count, found[0])
    encoding.partitions_of_in_python(keys, len(values), count, memoryview(found[1]))
    assert found[0] == found[1]


def test_a_batch_is_built_again_under_another_sequence_number() -> None:
    """In the memory of the builder; compressed batches have their own."""
    builder = BatchBuilder()
    builder.append(None, b"a" * 1000, 7)
    first = builder.build(producer_id=1, producer_epoch=0, base_sequence=5)
    assert parse_header(first, 0).base_sequence == 5
    compressed = builder.build(codec=Codec.GZIP, producer_id=1, producer_epoch=0, base_sequence=6)
    assert len(compressed) < len(first)
    second = builder.build(producer_id=1, producer_epoch=1, base_sequence=0)
    assert second is first
    for batch in (second, compressed):
        verify_crc(batch, 0, parse_header(batch, 0))
        assert [record.value for record in read_records(batch, 0, parse_header(batch, 0))] == [b"a" * 1000]
    builder.append(None, b"b", 8)
    assert builder.size_bytes == len(builder.build()) - HEADER_SIZE


def test_columns_become_records() -> None:
    values = [b"a", None, b"", b"long" * 100]
    builder = BatchBuilder()
    builder.base_timestamp_ms = 1000
    times = int64_of(pa.array([1000, 1001, 999, 5000]))
    builder.count, builder.max_timestamp_ms = encoding.append_columns(
        builder.body, 0, 4, None, 4, None, column_of(pa.array(values)), None, times, 1000, 1 << 20
    )
    batch = builder.build()
    found = read_records(batch, 0, parse_header(batch, 0))
    assert [record.value for record in found] == values
    assert [record.timestamp_ms for record in found] == [1000, 1001, 999, 5000]


@pytest.mark.parametrize("append", [encoding.append_columns, encoding.append_columns_in_python])
def test_rows_that_do_not_exist(append: object) -> None:
    column = column_of(pa.array([b"a"]))
    with pytest.raises(ValueError, match="not within"):
        encoding.append_columns(bytearray(), 0, 1, array("q", [5]), 1, None, column, None, None, 0, 100)


def test_buffers_that_are_too_short() -> None:
    column = column_of(pa.array([b"a", b"b"]))
    assert column is not None
    for wrong in (
        column._replace(first=5),
        column._replace(offsets=memoryview(column.offsets or b"")[:8]),
        column._replace(validity=b""),
        column._replace(data=b""),
        column._replace(width=3),
    ):
        with pytest.raises(ValueError, match="column"):
            encoding.compiled.append_columns(bytearray(), 0, 2, None, 2, None, wrong, None, None, 0, 100)
