"""Records become the rows that Spark's own Kafka source would show, and only the columns asked for are built."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from raylog.core.errors import ConfigError
from raylog.protocol.records.reader import Record
from raylog.raydp_bridge.arrow import COLUMNS, arrow_schema, choose_columns, records_to_arrow

FULL = Record(41, 1_357_034_400_123, 0, b"UA-1545", b"\x00\xff", (("trace", b"\x01"), ("note", None)))
BARE = Record(42, -1, 1, None, None, ())


def test_every_column() -> None:
    batch = records_to_arrow([FULL, BARE], "flights", 3, tuple(COLUMNS))
    assert batch.schema == arrow_schema(tuple(COLUMNS))
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


def test_columns_come_in_the_order_asked_for_and_no_other_is_built() -> None:
    class ValueOnly(Record):
        @property
        def headers(self) -> tuple[tuple[str, bytes | None], ...]:
            raise AssertionError("nobody asked for the headers")

    batch = records_to_arrow(iter([ValueOnly(*FULL)]), "flights", 3, choose_columns(["value", "offset"]))
    assert batch.to_pydict() == {"value": [b"\x00\xff"], "offset": [41]}


def test_no_records_make_an_empty_batch_of_the_same_schema() -> None:
    batch = records_to_arrow([], "flights", 3, ("key", "headers"))
    assert batch.num_rows == 0
    assert batch.schema == arrow_schema(("key", "headers"))


def test_the_first_millisecond_and_years_far_away_are_kept() -> None:
    times = [0, 1, -2, 253_402_300_799_999]
    batch = records_to_arrow([BARE._replace(timestamp_ms=time) for time in times], "t", 0, ("timestamp",))
    assert batch.column(0).cast(pa.int64()).to_pylist() == [time * 1000 for time in times]


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (["value", "vlaue"], "'vlaue' is none of key, value, topic"),
        (["value", "value"], "names a column twice"),
        ([], "at least one of"),
        ("value", "at least one of"),
    ],
)
def test_columns_are_refused_by_name(asked: Sequence[str], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        choose_columns(asked)


def test_all_columns_are_the_default() -> None:
    assert choose_columns(None) == tuple(COLUMNS)
