"""Spark gets the names and types that the record batches have."""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_schema

from raylog.protocol.records.arrow import COLUMNS, arrow_schema
from raylog.raydp_bridge.arrow import spark_schema


def test_the_ddl_is_that_of_sparks_kafka_source() -> None:
    assert spark_schema(tuple(COLUMNS)) == (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp, "
        "`timestampType` int, `headers` array<struct<key: string, value: binary>>"
    )


def test_spark_derives_the_same_schema_from_the_arrow_types() -> None:
    for name in COLUMNS:
        (field,) = from_arrow_schema(arrow_schema((name,)))
        said = spark_schema((name,)).removeprefix(f"`{name}` ").replace(": ", ":").replace(", ", ",")
        assert field.dataType.simpleString() == said
