"""Record sets become the rows of Spark's own Kafka source; views do not copy the buffer and keep it alive."""

from __future__ import annotations

import gc
import mmap
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import ConfigError, ErrorCode
from raylog.protocol.records import columnar_numba, columnar_numpy
from raylog.protocol.records.arrow import COLUMNS, UnfitTimestamp, arrow_schema, choose_columns, read_arrow, to_arrow
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.columnar import Kernel, decode_columns
from raylog.protocol.records.compression import Buffer, Codec
from raylog.protocol.records.reader import read_batches
from tests.protocol.records.raw_batches import LOG_APPEND_TIME, raw_batch, raw_record

KERNELS: dict[str, Kernel] = {"numba": columnar_numba.compiled_kernel(), "numpy": columnar_numpy}
FULL = NewRecord(b"UA-1545", b"\x00\xff", 1_357_034_400_123, (("trace", b"\x01"), ("note", None)))
BARE = NewRecord(None, None, -1)
LONG = NewRecord(b"a key of more than twelve bytes", b"value" * 100, 0, (("häder", b"v" * 50),))
both_forms = pytest.mark.parametrize("views", [True, False], ids=["views", "plain"])


def read(data: Buffer, columns: Sequence[str] = tuple(COLUMNS), **options: Any) -> pa.RecordBatch:
    (batch,) = read_arrow(data, topic="flights", partition=3, columns=columns, **options)
    batch.validate(full=True)
    return batch


@both_forms
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_column(kernel: Kernel, *, views: bool) -> None:
    data = build_batch([FULL], base_offset=41) + raw_batch(
        raw_record(), 1, base_offset=42, max_timestamp=-1, attributes=LOG_APPEND_TIME
    )
    batch = read(data, views=views, kernel=kernel)
    assert batch.schema == arrow_schema(tuple(COLUMNS), views=views)
    assert batch.to_pylist() == [
        {
            "key": b"UA-1545",
            "value": b"\x00\xff",
            "topic": "flights",
            "partition": 3,
            "offset": 41,
            "timestamp": datetime(2013, 1, 1, 10, 0, 0, 123_000, tzinfo=UTC),
            "timestampType": 0,
            "headers": [{"key": "trace", "value": b"\x01"}, {"key": "note", "value": None}],
        },
        {
            "key": None,
            "value": None,
            "topic": "flights",
            "partition": 3,
            "offset": 42,
            "timestamp": None,
            "timestampType": 1,
            "headers": None,
        },
    ]


def test_the_types_are_those_of_sparks_kafka_source() -> None:
    assert arrow_schema(tuple(COLUMNS)).types == [
        pa.binary(),
        pa.binary(),
        pa.string(),
        pa.int32(),
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
        pa.int32(),
        pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    ]
    assert arrow_schema(("value", "offset", "key"), views=True).types == [
        pa.binary_view(),
        pa.int64(),
        pa.binary_view(),
    ]


SMALL = st.one_of(st.none(), st.binary(max_size=40))


@settings(max_examples=100, deadline=None)
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
        max_size=12,
    ),
    st.lists(st.sampled_from(list(Codec)), min_size=1, max_size=3),
    st.lists(st.sampled_from(tuple(COLUMNS)), min_size=1, unique=True),
)
def test_rows_are_those_of_the_reader(records: list[NewRecord], codecs: list[Codec], columns: list[str]) -> None:
    data = b"".join(build_batch(records, codec=codec, base_offset=20 * n) for n, codec in enumerate(codecs))
    wanted = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "flights",
            "partition": 3,
            "offset": record.offset,
            "timestamp": None if record.timestamp_ms == -1 else record.timestamp_ms * 1000,
            "timestampType": record.timestamp_type,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in read_batches(data)
    ]
    for kernel in KERNELS.values():
        for views in (True, False):
            batch = read(data, columns, views=views, kernel=kernel)
            assert batch.schema.names == columns
            if "timestamp" in columns:
                at = columns.index("timestamp")
                batch = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
            assert batch.to_pylist() == [{name: row[name] for name in columns} for row in wanted]


def test_views_refer_to_the_buffer_and_contain_short_values() -> None:
    data = bytes(build_batch([FULL, LONG, BARE]))
    begin = np.frombuffer(data, np.uint8).ctypes.data
    keys, values = read(data, ("key", "value"), views=True).columns
    for array in (keys, values):
        _, views, shown = array.buffers()
        assert begin <= shown.address < shown.address + shown.size <= begin + len(data)
        assert views.size == 16 * 3
    assert keys.buffers()[1].to_pybytes()[:16] == b"\x07\0\0\0UA-1545\0\0\0\0\0"
    assert values.null_count == 1


def test_views_of_compressed_batches_have_one_buffer_of_their_own() -> None:
    data = b"".join(build_batch([LONG] * 3, codec=codec) for codec in Codec)
    batch = read(data, ("value",), views=True)
    assert len(batch.column(0).buffers()) == 3
    assert batch.column(0).to_pylist() == [LONG.value] * 15


def test_views_keep_the_mapping_alive_and_plain_columns_do_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(build_batch([LONG, FULL]))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    plain = read(memoryview(mapped))
    shown = read(memoryview(mapped), ("key", "offset", "value"), views=True)
    wanted = plain.select(["key", "offset", "value"]).to_pylist()
    with pytest.raises(BufferError):
        mapped.close()
    assert shown.to_pylist() == wanted
    shown = shown.drop_columns(["key", "value"])
    gc.collect()
    mapped.close()
    assert plain.column("value").to_pylist() == [LONG.value, FULL.value]
    assert shown.to_pylist() == [{"offset": 0}, {"offset": 1}]


def test_offsets_alone_build_nothing_else() -> None:
    class OffsetsOnly:
        scan = staticmethod(columnar_numpy.scan)

        def fill_headers(self, *_: object) -> int:
            raise AssertionError("headers were not requested")

        def fill_views(self, *_: object) -> None:
            raise AssertionError("byte columns were not requested")

    data = build_batch([FULL, BARE, LONG])
    assert read(data, ("partition", "offset"), kernel=OffsetsOnly()).to_pydict() == {
        "partition": [3, 3, 3],
        "offset": [0, 1, 2],
    }
    assert read(data, ("topic",), kernel=OffsetsOnly()).to_pydict() == {"topic": ["flights"] * 3}


def test_bounds_are_respected_and_no_batch_is_empty() -> None:
    data = b"".join(build_batch([LONG] * 10, base_offset=first) for first in (0, 10, 20))
    options: dict[str, Any] = {"topic": "t", "partition": 0, "columns": ("offset",), "from_offset": 8}
    sizes = [batch.num_rows for batch in read_arrow(data, **options, end_offset=21, target_bytes=1)]
    assert sizes == [2, 10, 1]
    assert not list(read_arrow(data, **options, end_offset=8))
    assert not list(read_arrow(b"", **options))


@both_forms
def test_extreme_timestamps_are_kept(*, views: bool) -> None:
    times = [0, 1, -2, -1, 253_402_300_799_999, ((1 << 63) - 1) // 1000, -((1 << 63) // 1000)]
    data = build_batch([BARE._replace(timestamp_ms=time) for time in times])
    shown = read(data, ("timestamp",), views=views).column(0)
    assert shown.cast(pa.int64()).to_pylist() == [None if time == -1 else time * 1000 for time in times]


@pytest.mark.parametrize("time", [((1 << 63) - 1) // 1000 + 1, (1 << 63) - 1, -(1 << 63)])
def test_a_timestamp_outside_microseconds_is_refused_if_timestamps_are_requested(time: int) -> None:
    data = build_batch([BARE._replace(timestamp_ms=time)])
    with pytest.raises(UnfitTimestamp, match="offset 0 has a timestamp more than") as caught:
        read(data, ("timestamp",))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert pickle.loads(pickle.dumps(caught.value)).offset == caught.value.offset == 0
    assert read(data, ("offset",)).num_rows == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=6), st.sampled_from([b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]))))
def test_invalid_utf8_in_header_names_is_replaced_as_by_the_reader(names: list[bytes]) -> None:
    data = raw_batch(raw_record(headers=[(name, None) for name in names]), 1)
    (record,) = read_batches(data)
    shown = read(data, ("headers",)).column(0).to_pylist()[0]
    assert [header["key"] for header in shown or []] == [name for name, _ in record.headers]


def test_decoded_columns_can_be_converted_later() -> None:
    (decoded,) = decode_columns(build_batch([FULL]), ("value", "offset"))
    batch = to_arrow(decoded, topic="t", partition=0, columns=("offset", "topic", "value"))
    assert batch.to_pylist() == [{"offset": 0, "topic": "t", "value": FULL.value}]
    with pytest.raises(ValueError, match="not decoded"):
        to_arrow(decoded, topic="t", partition=0, columns=("key",))


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (["value", "vlaue"], "'vlaue' must be one of key, value, topic"),
        (["value", "value"], "must not contain a column twice"),
        ([], "at least one of"),
        ("value", "at least one of"),
    ],
)
def test_unknown_columns_are_refused_by_name(asked: Sequence[str], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        choose_columns(asked)


def test_all_columns_are_the_default() -> None:
    assert choose_columns(None) == tuple(COLUMNS)
    assert choose_columns(["offset", "key"]) == ("offset", "key")
