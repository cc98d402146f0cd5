"""The format "raylog" is refused where Spark cannot have it."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ConfigError
from raylog.raydp_bridge import java, register


def test_spark_3_is_told_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"pyspark": "3.5.7"}.__getitem__)
    assert java.spark_major() == 3
    spark: Any = None
    with pytest.raises(ConfigError, match=r"needs Spark 4 .*read_topic and read_stream"):
        register(spark)
