"""Columns of JSON, msgpack, Avro and Protobuf are decoded and encoded by Spark's tasks."""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import expr

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.formats.avro import Avro
from raylog.raydp_bridge.formats.columns import decode, encode, from_json, msgpack_format, to_json
from raylog.raydp_bridge.formats.values import ValueFormat
from tests.raydp_bridge.formats.test_formats import AVRO, PROTOBUF

pytestmark = pytest.mark.spark

DDL = """n bigint, name string, data binary, price double, at timestamp, tags array<string>, counts map<string, int>,
    inner struct<flag: boolean>"""


def test_columns_are_encoded_and_decoded_again(spark: SparkSession) -> None:
    rows = spark.range(20).select(
        "id",
        expr(
            """named_struct('n', id, 'name', 'x', 'data', CAST('y' AS BINARY), 'price', id / 4,
            'at', CAST('2013-01-01 05:17:00' AS TIMESTAMP), 'tags', array('a', 'b'),
            'counts', map('k', CAST(id AS INT)), 'inner', named_struct('flag', id % 2 = 0))"""
        ).alias("record"),
    )
    expected = rows.collect()
    formats: list[ValueFormat] = [msgpack_format(DDL), Avro(AVRO), PROTOBUF]
    for value_format in formats:
        encoded = encode(rows, value_format, to="value").drop("record")
        assert encoded.dtypes == [("id", "bigint"), ("value", "binary")]
        found = decode(encoded, value_format).select("id", "record.*").collect()
        names = [name for name in found[0].asDict() if name in expected[0].record]
        assert [(row.id, *(row[name] for name in names)) for row in found] == [
            (row.id, *(row.record[name] for name in names)) for row in expected
        ]
        assert names == list(expected[0].record.asDict())
    malformed = encode(rows, PROTOBUF).selectExpr("IF(id = 1, CAST('?' AS BINARY), value) AS value")
    assert [
        row.n for row in decode(malformed, PROTOBUF, to="value", mode="PERMISSIVE").select("value.n").collect()
    ] == [None if number == 1 else number for number in range(20)]


def test_json_is_that_of_spark(spark: SparkSession) -> None:
    rows = spark.range(2).select(to_json("id").cast("binary").alias("value"))
    assert rows.select(from_json("value", "id int").alias("r")).select("r.id").collect() == [Row(id=0), Row(id=1)]
    assert rows.select(from_json(expr("'{'"), "id int").alias("r")).first() == Row(r=Row(id=None))


def test_wrong_columns_are_refused_before_a_task_starts(spark: SparkSession) -> None:
    frame = spark.range(1)
    with pytest.raises(ConfigError, match="column='value': must be one of id"):
        decode(frame, PROTOBUF)
    with pytest.raises(ConfigError, match="id: must be binary or string, not bigint"):
        decode(frame, PROTOBUF, column="id")
    with pytest.raises(ConfigError, match="mode='DROP'"):
        encode(frame, PROTOBUF, mode="DROP")  # type: ignore[arg-type]
