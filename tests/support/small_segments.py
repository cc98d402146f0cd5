"""A broker's configuration with segments below Kafka's bound of 1 MiB, which a test fills with few records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raylog.config.log import LOG_SEGMENT_BYTES
from raylog.config.table import BROKER_CONFIG, broker_configs
from raylog.core.config import Configs, Layer


def with_small_segments(given: Mapping[str, Any]) -> Configs:
    """`broker_configs`, except that log.segment.bytes may have any value."""
    others = dict(given)
    segment_bytes = others.pop(LOG_SEGMENT_BYTES.name, None)
    configs = broker_configs(others)
    if segment_bytes is None:
        return configs
    [static] = configs.layers
    return Configs(BROKER_CONFIG, [Layer(static.source, {**static.values, LOG_SEGMENT_BYTES.name: int(segment_bytes)})])
