"""The loop in C that decodes records against the one in Python: the same records, or none of malformed ones."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import KafkaError
from raylog.protocol.records import reader
from raylog.protocol.records.batch import LOG_APPEND_TIME_BIT, BatchHeader
from raylog.protocol.records.reader import Record
from tests.protocol.records.raw_batches import raw_record

native = pytest.importorskip("raylog.protocol.records._decoding")

INT64 = st.integers(-(2**63), 2**63 - 1)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
BYTES = st.none() | st.binary(max_size=200)
CONTENTS = st.lists(st.tuples(INT64, BYTES, BYTES, HEADERS), min_size=1, max_size=20)


def in_python(data: bytes, header: BatchHeader) -> list[Record] | None:
    """None if it is malformed."""
    try:
        return reader._decode(data, header)
    except (KafkaError, IndexError):
        return None


def in_c(data: bytes, header: BatchHeader, from_offset: int = 0) -> list[Record] | None:
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    found: list[Record] | None = native.decode(
        data,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        append_time,
        header.timestamp_type,
        from_offset,
        Record,
        (),
    )
    return found


def header_of(count: int, *, base_timestamp: int, base_offset: int, attributes: int, last: int) -> BatchHeader:
    return BatchHeader(base_offset, 0, 0, 2, 0, attributes, last, base_timestamp, 77, -1, -1, -1, count)


@given(
    contents=CONTENTS,
    base_timestamp=INT64,
    base_offset=st.integers(0, 2**62),
    append_time=st.booleans(),
    damage=st.none() | st.tuples(st.integers(0, 5000), st.integers(0, 255)),
    cut=st.integers(0, 3),
)
def test_both_loops_agree(
    contents: list[tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]],
    base_timestamp: int,
    base_offset: int,
    append_time: bool,
    damage: tuple[int, int] | None,
    cut: int,
) -> None:
    fields = enumerate(contents)
    data = bytearray(
        b"".join(
            raw_record(delta, timestamp_delta=time, key=key, value=value, headers=each)
            for delta, (time, key, value, each) in fields
        )
    )
    if damage is not None:
        data[damage[0] % len(data)] = damage[1]
        data = data[: len(data) - cut]
    header = header_of(
        len(contents),
        base_timestamp=base_timestamp,
        base_offset=base_offset,
        attributes=LOG_APPEND_TIME_BIT if append_time else 0,
        last=len(contents) - 1,
    )
    expected = in_python(bytes(data), header)
    found = in_c(bytes(data), header)
    if found is not None:
        assert found == expected
        middle = base_offset + len(contents) // 2
        assert in_c(bytes(data), header, middle) == [each for each in found if each.offset >= middle]
    elif damage is None:  # a sum beyond 64 bits is left to the loop in Python
        assert any(not -(2**63) <= base_timestamp + time < 2**63 for time, *_ in contents)


def test_fields_that_all_records_share() -> None:
    data = raw_record(0, timestamp_delta=5, key=b"k", headers=[(b"h\xff", b"1")])
    made = native.decode(data, 1, 10, 0, 100, None, 0, 0, Record, ())
    assert made == [Record(10, 105, 0, b"k", None, (("h\ufffd", b"1"),))]
    assert type(made[0]) is Record

    class Pair(tuple[object, ...]):
        __slots__ = ()

    assert native.decode(data, 1, 10, 0, 100, 7, 1, 0, Pair, ("t", 3)) == [
        ("t", 3, 10, 7, 1, b"k", None, (("h\ufffd", b"1"),))
    ]
    with pytest.raises(TypeError):
        native.decode(data, 1, 10, 0, 100, None, 0, 0, dict, ())


def test_records_do_not_burden_the_garbage_collector() -> None:
    data = b"".join(raw_record(delta, key=b"k", value=b"v") for delta in range(1000))
    gc.collect()
    before = len(gc.get_objects())
    records = native.decode(data, 1000, 0, 999, 0, None, 0, 0, Record, ())
    assert len(gc.get_objects()) - before < 10
    assert len(records) == 1000
