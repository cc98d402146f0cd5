"""Log records as Arrow columns, under the names and types of Spark's own Kafka source.

    key, value      binary, null where the record has none
    topic           string
    partition       int
    offset          long
    timestamp       timestamp in UTC, to the microsecond; null where the record has none
    timestampType   int: 0 CreateTime, 1 LogAppendTime
    headers         array of (key string, value binary); null where the record has none, as in Spark

Only the columns asked for are built: Spark 3.5 does not push its projection into `mapInArrow`, so the choice is an
argument all the way down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from raylog.core.errors import ConfigError
from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.protocol.records.reader import Record

_US_PER_MS = 1000

Builder = Callable[[Sequence[Record], str, int], list[object]]
"""The values of one column, from the records, their topic and their partition."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Arrow type, the same for Spark in DDL, and how its values are had."""

    arrow_type: pa.DataType
    ddl: str
    build: Builder


def _timestamps_us(records: Sequence[Record], topic: str, partition: int) -> list[object]:
    return [None if record.timestamp_ms == NO_TIMESTAMP_MS else record.timestamp_ms * _US_PER_MS for record in records]


_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

COLUMNS: Mapping[str, Column] = {
    "key": Column(pa.binary(), "binary", lambda records, topic, partition: [record.key for record in records]),
    "value": Column(pa.binary(), "binary", lambda records, topic, partition: [record.value for record in records]),
    "topic": Column(pa.string(), "string", lambda records, topic, partition: [topic] * len(records)),
    "partition": Column(pa.int32(), "int", lambda records, topic, partition: [partition] * len(records)),
    "offset": Column(pa.int64(), "bigint", lambda records, topic, partition: [record.offset for record in records]),
    "timestamp": Column(pa.timestamp("us", tz="UTC"), "timestamp", _timestamps_us),
    "timestampType": Column(
        pa.int32(), "int", lambda records, topic, partition: [record.timestamp_type for record in records]
    ),
    "headers": Column(
        _HEADERS,
        "array<struct<key: string, value: binary>>",
        lambda records, topic, partition: [
            [{"key": key, "value": value} for key, value in record.headers] or None for record in records
        ],
    ),
}


def choose_columns(asked: Sequence[str] | None) -> tuple[str, ...]:
    """The columns in the order asked for; all of them for None.

    Raises ConfigError for a name that is no column, one said twice, and for no column at all.
    """
    if asked is None:
        return tuple(COLUMNS)
    if not asked or isinstance(asked, str):
        raise ConfigError(f"columns={asked!r}: must be a list of at least one of {', '.join(COLUMNS)}")
    for name in asked:
        if name not in COLUMNS:
            raise ConfigError(f"columns: {name!r} is none of {', '.join(COLUMNS)}")
    if len(set(asked)) < len(asked):
        raise ConfigError(f"columns={list(asked)!r}: names a column twice")
    return tuple(asked)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS[name].arrow_type) for name in columns])


def spark_schema(columns: Sequence[str]) -> str:
    """The same as Spark's DDL, which `mapInArrow` takes."""
    return ", ".join(f"`{name}` {COLUMNS[name].ddl}" for name in columns)


def records_to_arrow(records: Iterable[Record], topic: str, partition: int, columns: Sequence[str]) -> pa.RecordBatch:
    """One row per record, in their order, with the given columns and no other. The bytes are copied."""
    rows = records if isinstance(records, Sequence) else list(records)
    schema = arrow_schema(columns)
    arrays = [pa.array(COLUMNS[field.name].build(rows, topic, partition), type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
