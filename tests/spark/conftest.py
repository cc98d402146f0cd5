"""One Spark session for all tests of a run: a process can have one at a time, and it takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from raylog.raydp_bridge.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("raylog-tests") as session:
        yield session
