"""Topics as Spark DataFrames through RayDP, and as Ray Datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.java import spark_major

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format "raylog" known to this session, for reads and writes; docs/spark-4.md describes it.

    The end offsets of the batches of streaming queries are committed to the group `spark-<query id>`, for display only.
    Raises ConfigError on Spark 3.5.
    """
    if spark_major() < 4:
        raise ConfigError(
            'the format "raylog" needs Spark 4 (the extra spark4); on Spark 3.5 use read_topic and read_stream in '
            "raylog.raydp_bridge.source and raylog.raydp_bridge.stream, and write_topic and write_stream in "
            "raylog.raydp_bridge.sink"
        )
    from raylog.raydp_bridge import data_source

    data_source.register(spark)
