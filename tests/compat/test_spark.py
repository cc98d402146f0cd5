"""Records that stock clients write are the same rows in Spark as in confluent-kafka, in every column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import raylog
from tests.compat.clients import CLIENTS
from tests.compat.confluent import Confluent
from tests.compat.row import CODECS, Row
from tests.compat.test_exchange import chunks_of
from tests.compat.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.compat, pytest.mark.spark, pytest.mark.usefixtures("ray_runtime")]

TOPIC = "for-spark"
CREATE_TIME = 0


def test_rows_are_equal_in_spark(spark: SparkSession) -> None:
    """Every client writes partition 0 and 1 in turn, in every codec; partition 2 stays empty."""
    from pyspark.sql.functions import unix_millis

    from raylog.raydp_bridge.source import read_topic

    with raylog.start("compat-with-spark") as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=3)
        for client in CLIENTS:
            writer = client(cluster.bootstrap_servers)
            for number, codec in enumerate(CODECS):
                partition = number % 2
                odd, many, *_ = chunks_of(partition)
                rows = [row for row in odd + many if writer.why_not(row) is None]
                assert len(writer.produce(TOPIC, partition, rows, codec)) == len(rows)
        expected = Confluent(cluster.bootstrap_servers).consume(TOPIC, 3)
        assert len(expected) > len(CLIENTS) * len(CODECS) * 300

        frame = read_topic(spark, TOPIC, bootstrap_servers=cluster.bootstrap_servers, min_partitions=4)
        assert frame.columns == [
            "key",
            "value",
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestampType",
            "headers",
        ]
        answers = frame.withColumn("timestamp_ms", unix_millis("timestamp")).collect()
        assert {(answer.topic, answer.timestampType) for answer in answers} == {(TOPIC, CREATE_TIME)}
        found = [
            Row(
                answer.partition,
                answer.offset,
                _bytes(answer.key),
                _bytes(answer.value),
                tuple((header.key, _bytes(header.value)) for header in answer.headers or ()),
                answer.timestamp_ms,
            )
            for answer in answers
        ]
        for partition in range(3):
            in_spark = [row for row in found if row.partition == partition]
            assert in_spark == [row for row in expected if row.partition == partition]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
