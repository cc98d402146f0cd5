"""The columns of `raylog.protocol.records.arrow` as Spark types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from raylog.protocol.records.arrow import COLUMNS

_DDL: Mapping[pa.DataType, str] = {
    COLUMNS["value"]: "binary",
    COLUMNS["topic"]: "string",
    COLUMNS["partition"]: "int",
    COLUMNS["offset"]: "bigint",
    COLUMNS["timestamp"]: "timestamp",
    COLUMNS["headers"]: "array<struct<key: string, value: binary>>",
}


def spark_schema(columns: Sequence[str]) -> str:
    """Names and types of the columns in Spark's DDL, for `mapInArrow`."""
    return ", ".join(f"`{name}` {_DDL[COLUMNS[name]]}" for name in columns)
