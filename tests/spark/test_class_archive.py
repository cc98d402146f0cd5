"""Spark's driver maps the archive of its classes, if the environment has one, as `script/setup` makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from raylog.raydp_bridge import class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_driver_maps_the_archive(spark: SparkSession) -> None:
    option = class_archive.java_option()
    if not option:
        pytest.skip("this environment has none: python -m raylog.raydp_bridge.class_archive")
    archive = option.split()[0].partition("=")[2]
    gateway: Any = spark.sparkContext._gateway
    assert archive in Path(f"/proc/{gateway.proc.pid}/maps").read_text()
