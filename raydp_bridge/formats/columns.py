"""(shell) Columns of Spark in other formats.

from_json and to_json are Spark's functions; `decode` and `encode` convert a column of msgpack, Avro or Protobuf in
mapInArrow, without jars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_string,
)

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.formats.msgpack import Msgpack
from raylog.raydp_bridge.formats.values import Mode, ValueFormat, check_mode, decode_column, encode_column

_BYTES: Final = (BinaryType, StringType)
_IN_UTC: Final[dict[str, Any]] = {} if pyspark.__version__.startswith("3.") else {"timezone": "UTC"}
"""Timestamps of Arrow are in UTC; Spark 4 wants to be told so."""

Convert = Callable[[pa.Array, ValueFormat, Mode], pa.Array]


def from_json(column: Column | str, schema: StructType | ArrayType | str, *, mode: Mode = "PERMISSIVE") -> Column:
    """Spark's from_json, for binary columns too. A malformed value has null in all fields, or fails the task."""
    check_mode(mode)
    text = (functions.col(column) if isinstance(column, str) else column).cast("string")
    return functions.from_json(text, schema, {"mode": mode})


def to_json(*columns: Column | str) -> Column:
    """The columns as one JSON object: Spark's to_json of a struct."""
    return functions.to_json(functions.struct(*columns))


def msgpack_format(schema: DataType | str) -> Msgpack:
    """For `decode` and `encode`; `schema` is a type of Spark, or its DDL such as "name string, price double"."""
    kind = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    return Msgpack(to_arrow_type(kind, **_IN_UTC))


def decode(
    df: DataFrame, value_format: ValueFormat, *, column: str = "value", to: str = "record", mode: Mode = "FAILFAST"
) -> DataFrame:
    """`df` with a column `to` of the decoded values of `column`, which is binary or string.

    A malformed value fails the task, or with mode="PERMISSIVE" is null. Raises ConfigError.
    """
    check_mode(mode)
    given = _field(df, column).dataType
    if not isinstance(given, _BYTES):
        raise ConfigError(f"{column}: must be binary or string, not {given.simpleString()}")
    made = StructField(to, from_arrow_type(value_format.arrow_type, prefer_timestamp_ntz=True))
    return _with_column(df, made, column, decode_column, value_format, mode)


def encode(
    df: DataFrame, value_format: ValueFormat, *, column: str = "record", to: str = "value", mode: Mode = "FAILFAST"
) -> DataFrame:
    """`df` with a binary column `to` of the encoded values of `column`.

    A value that does not fit the format fails the task, or with mode="PERMISSIVE" is null. Raises ConfigError.
    """
    check_mode(mode)
    _field(df, column)
    return _with_column(df, StructField(to, BinaryType()), column, encode_column, value_format, mode)


def _field(df: DataFrame, name: str) -> StructField:
    found = [field for field in df.schema.fields if field.name == name]
    if len(found) != 1:
        raise ConfigError(f"column={name!r}: must be one of {', '.join(df.columns)}")
    return found[0]


def _with_column(
    df: DataFrame, made: StructField, column: str, convert: Convert, value_format: ValueFormat, mode: Mode
) -> DataFrame:
    """`made` takes the place of a column of that name, or comes last."""
    names = df.columns
    at = names.index(made.name) if made.name in names else len(names)
    fields = list(df.schema.fields)
    fields[at : at + 1] = [made]
    source = names.index(column)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrays: list[Any] = list(batch.columns)
            arrays[at : at + 1] = [convert(batch.column(source), value_format, mode)]
            yield pa.RecordBatch.from_arrays(arrays, [field.name for field in fields])

    return df.mapInArrow(task, StructType(fields))
