"""Tables of Arrow become the buffers of records, or are refused with INVALID_RECORD."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.arrow_encoding import by_topic, rows_of

SECOND_PAST_64_BITS = 1 << 60
"""In milliseconds it exceeds 64 bits."""


def refusal(**columns: Any) -> str:
    with pytest.raises(KafkaError) as caught:
        list(rows_of(pa.table(columns)))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    return caught.value.message


def timestamps(array: pa.Array) -> list[int]:
    (rows,) = rows_of(pa.table({"timestamp": array}))
    assert rows.timestamps is not None
    found: list[int] = np.frombuffer(rows.timestamps, np.int64).tolist()
    return found


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([5, -1], pa.timestamp("s")), [5000, -1000]),
        (pa.array([5_999, 7_000], pa.timestamp("us", "Europe/Berlin")), [5, 7]),
        (pa.array([-(1 << 63), (1 << 63) - 1], pa.int64()), [-(1 << 63), (1 << 63) - 1]),
        (pa.array([5, (1 << 63) - 1], pa.uint64()), [5, (1 << 63) - 1]),
        (pa.array([-5, 7], pa.int16()), [-5, 7]),
    ],
)
def test_timestamps_are_milliseconds(array: pa.Array, expected: list[int]) -> None:
    assert timestamps(array) == expected


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("timestamp", pa.array([0, SECOND_PAST_64_BITS], pa.timestamp("s"))),
        ("timestamp", pa.array([0, (1 << 64) - 1], pa.uint64())),
        ("partition", pa.array([0, (1 << 64) - 1], pa.uint64())),
        ("partition", pa.array([None, (1 << 64) - 1], pa.uint64())),
    ],
)
def test_numbers_that_exceed_64_bits_are_refused(name: str, array: pa.Array) -> None:
    assert refusal(**{name: array}).startswith(f"the column {name} has numbers that exceed 64 bits: ")


@pytest.mark.parametrize(
    "rows",
    [
        [5],
        [0],
        ["xy"],
        [{"name": "a", "value": b""}],
        [["ab"]],
        [[None]],
        [[["a", "b", "c"]]],
        [[{"name": "a"}]],
        [[{"name": None, "value": b""}]],
    ],
    ids=str,
)
def test_headers_of_other_types_are_refused(rows: list[Any]) -> None:
    assert refusal(headers=pa.array(rows)) == "the column headers must contain lists of a string and binary"


def test_headers_that_cannot_be_read_are_refused() -> None:
    not_utf8 = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    headers = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), not_utf8, pa.array([b""]))
    assert refusal(headers=headers).startswith("the column headers cannot be read: ")


def test_rows_with_a_topic_alone_are_kept() -> None:
    table = pa.table({"topic": ["b", "a", "b"]})
    assert [(name, [rows.row_count for rows in rows_of(part)]) for name, part in by_topic(table)] == [
        ("b", [2]),
        ("a", [1]),
    ]


@pytest.mark.parametrize(
    ("view", "plain"), [(pa.string_view(), pa.large_string()), (pa.binary_view(), pa.large_binary())], ids=str
)
def test_views_are_the_bytes_that_they_show(view: pa.DataType, plain: pa.DataType) -> None:
    texts = [b"short", None, b"longer than what a view contains itself", b""]

    def encoded(kind: pa.DataType) -> list[tuple[str, bytes, bytes]]:
        values = pa.array(texts, pa.binary()).cast(pa.string()).cast(kind)
        table = pa.table({"topic": pa.array(["b", "a", "b", "a"]), "value": values})
        found = []
        for name, part in [("", table.select(["value"])), *by_topic(table)]:
            for rows in rows_of(part):
                assert rows.values is not None
                assert rows.values.offsets is not None
                assert rows.values.data is not None
                found.append((name, bytes(rows.values.offsets), bytes(rows.values.data)))
        return found

    assert encoded(view) == encoded(plain)


def test_the_column_topic_can_be_of_views() -> None:
    table = pa.table({"topic": pa.array(["b", "a", "b"], pa.string_view()), "value": [b"1", b"2", b"3"]})
    assert [(name, part.column("value").to_pylist()) for name, part in by_topic(table)] == [
        ("b", [b"1", b"3"]),
        ("a", [b"2"]),
    ]
