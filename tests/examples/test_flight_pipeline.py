"""The tables of the flight pipeline are those of pandas, though the query is ended and started in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import raylog
from examples.flight_pipeline import PREDICTIONS, Day, DayDelays, check, demonstrate, records
from examples.flight_records import Mismatch, load_flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.ray, pytest.mark.spark]
ROWS = 6_000
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def few_shuffle_partitions(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(SHUFFLE_PARTITIONS)
    spark.conf.set(SHUFFLE_PARTITIONS, "2")
    yield
    spark.conf.set(SHUFFLE_PARTITIONS, before or "200")


@pytest.mark.usefixtures("few_shuffle_partitions")
def test_the_table_is_that_of_pandas(spark: SparkSession, tmp_path: Path) -> None:
    said: list[str] = []
    with raylog.start("pipeline") as cluster:
        demonstrate(spark, cluster.bootstrap_servers, load_flights(ROWS), tmp_path, said.append)
        predictions = list(records(cluster.bootstrap_servers, PREDICTIONS))
    assert len(said) == 4
    assert 0.4 * ROWS < len(predictions) <= 0.5 * ROWS
    assert all(json.loads(record.value)["carrier"] == record.key.decode() for record in predictions if record.key)


def test_another_table_is_reported() -> None:
    day = Day("United", "Newark", 0)
    check({day: DayDelays(3, 9, 0)}, {day: DayDelays(3, 9, 0)})
    for found in ({}, {day: DayDelays(3, 9, 1)}, {day: DayDelays(3, 9, 0), day._replace(day_ms=1): DayDelays(1, 0, 0)}):
        with pytest.raises(Mismatch, match="the topic has"):
            check(found, {day: DayDelays(3, 9, 0)})
