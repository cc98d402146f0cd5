"""A sink refuses wrong columns in Spark's words, and the digest of rows depends on their content alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.raydp_bridge.sinks.columns import RowDigest, check_topics, collected, sink_columns

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    ("types", "topic", "chosen"),
    [
        ({"value": "string"}, "t", ["value"]),
        ({"topic": "string", "value": "binary", "key": "string"}, None, ["key", "value", "topic"]),
        ({"topic": "string", "value": "binary"}, "t", ["value"]),
        (
            {"offset": "bigint", "headers": HEADERS, "partition": "int", "value": "binary"},
            "t",
            ["value", "partition", "headers"],
        ),
    ],
)
def test_known_columns_are_written_and_others_are_not(
    types: dict[str, str], topic: str | None, chosen: list[str]
) -> None:
    assert sink_columns(list(types.items()), topic) == chosen


@pytest.mark.parametrize(
    ("types", "topic", "message"),
    [
        ({"value": "string"}, None, "topic option required when no 'topic' attribute is present."),
        ({"key": "string"}, "t", "Required attribute 'value' not found."),
        ({"value": "int"}, "t", "value attribute unsupported type int. value must be a(n) string or binary"),
        ({"value": "string", "key": "bigint"}, "t", "key attribute unsupported type bigint."),
        ({"value": "string", "topic": "int"}, "t", "topic attribute unsupported type int. topic must be a(n) string"),
        ({"value": "string", "partition": "bigint"}, "t", "partition attribute unsupported type bigint."),
        ({"value": "string", "headers": "map<string,binary>"}, "t", "headers attribute unsupported type map"),
    ],
)
def test_wrong_columns_are_refused(types: dict[str, str], topic: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        sink_columns(list(types.items()), topic)
    assert raised.value.message.startswith(message)


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="several columns"):
        sink_columns([("value", "string"), ("value", "string")], "t")


def test_a_row_without_topic_is_refused() -> None:
    check_topics(pa.record_batch({"topic": ["a"], "value": ["x"]}))
    check_topics(pa.record_batch({"value": [None]}))
    with pytest.raises(KafkaError, match="null topic present in the data") as raised:
        check_topics(pa.record_batch({"topic": ["a", None], "value": ["x", "y"]}))
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_rows_are_collected_to_large_tables() -> None:
    batches = [pa.record_batch({"value": [b"x" * 100] * 10})] * 10
    tables = list(collected(iter(batches), 3000))
    assert [table.num_rows for table in tables] == [30, 30, 30, 10]
    assert {table.column("value").num_chunks for table in tables} == {1}
    other = pa.record_batch({"value": ["x"]})
    assert [table.num_rows for table in collected(iter([batches[0], other, other]), 10_000)] == [10, 2]
    assert list(collected(iter([]), 10)) == []


ROW = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=2),
        "value": st.none() | st.binary(max_size=2),
        "topic": st.sampled_from(["a", "b"]),
        "partition": st.none() | st.integers(0, 2),
        "headers": st.none() | st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=1)), max_size=2),
    }
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    as_headers = [
        row | {"headers": row["headers"] and [{"key": key, "value": value} for key, value in row["headers"]]}
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(as_headers, SCHEMA)


def digest_of(*batches: pa.RecordBatch) -> tuple[int, str]:
    digest = RowDigest()
    for batch in batches:
        digest.update(batch)
    return digest.rows, digest.hexdigest()


def content(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@given(st.lists(ROW, max_size=6), st.randoms(use_true_random=False), st.integers(0, 6))
def test_the_digest_does_not_depend_on_the_order_of_rows_and_batches(rows: list[Any], random: Any, cut: int) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert digest_of(batch_of(rows)) == digest_of(batch_of(shuffled[:cut]), batch_of(shuffled[cut:]))


@given(st.lists(ROW, max_size=3), st.lists(ROW, max_size=3))
def test_other_rows_have_another_digest(first: list[Any], second: list[Any]) -> None:
    assert (digest_of(batch_of(first)) == digest_of(batch_of(second))) == (content(first) == content(second))


def test_a_row_counts_as_often_as_it_occurs() -> None:
    one = batch_of([{"key": b"k", "value": b"v", "topic": "a", "partition": 0, "headers": None}])
    assert len({digest_of(*[one] * times) for times in range(5)}) == 5


def test_a_digest_has_32_characters_and_stays_the_same_between_versions() -> None:
    """It is stored in topics."""
    assert digest_of() == (0, "0" * 32)
    assert digest_of(pa.record_batch({"value": [b"v"], "key": [b"k"]}))[1] == "2c8b056d7ee7d8e18dd26dfc4cb8e004"


def test_what_no_record_can_be_is_refused() -> None:
    with pytest.raises(KafkaError, match="a row cannot become a record"):
        digest_of(pa.record_batch({"value": pa.array([1], pa.decimal128(5, 2))}))
