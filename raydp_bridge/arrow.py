"""The columns of `raylog.protocol.records.arrow` in Spark's words."""

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
    """Names and types of the columns as Spark's DDL, which `mapInArrow` takes."""
    return ", ".join(f"`{name}` {_DDL[COLUMNS[name]]}" for name in columns)
