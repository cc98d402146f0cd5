"""Metrics: the HTTP endpoint at which a node shows them, and what clients push. Keys, and settings made from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from raylog.core.config import ConfigKey, Configs, ConfigType, at_least

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]*):(?P<first>[0-9]{1,5})(-(?P<last>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Where metrics are shown: a host, and the ports of which a node takes one. An empty host is every interface."""

    host: str
    first_port: int
    last_port: int

    def ports(self, node_id: int) -> Iterator[int]:
        """All of them, beginning with the one that this node takes unless another process has it."""
        count = self.last_port - self.first_port + 1
        for step in range(count):
            yield self.first_port + (node_id + step) % count


def _parse(text: str) -> MetricsAddress | None:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    first = int(match["first"])
    last = int(match["last"] or first)
    if not first <= last <= 65535 or (first == 0 and last > 0):
        return None
    return MetricsAddress(match["host"].strip("[]"), first, last)


def _rule(text: str) -> str | None:
    if not text or _parse(text) is not None:
        return None
    return "must be host:port or host:first-last with ports up to 65535, or empty"


RAYLOG_METRICS_ADDRESS: ConfigKey[str] = ConfigKey(
    "raylog.metrics.address",
    ConfigType.STRING,
    "",
    "Address at which each broker and controller shows its metrics to Prometheus, at /metrics over HTTP, without"
    " authentication: host:port, or host:first-last for several nodes on one host, of which each takes a port of its"
    " own. Port 0 stands for any free port, which `raylog status` shows. Empty: metrics are not shown.",
    _rule,
)
TELEMETRY_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "telemetry.max.bytes",
    ConfigType.INT,
    1 << 20,
    "Most bytes of metrics that a client may push at once, as it sends them. Clients are asked for metrics where"
    " raylog.metrics.address is set and a client metrics resource matches them.",
    at_least(1),
)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    shown_at: MetricsAddress | None
    """None if metrics are not shown."""
    telemetry_bytes_max: int
    """Of what a client pushes at once."""


def metrics_address(text: str) -> MetricsAddress | None:
    """As in raylog.metrics.address; None for an empty text. Raises ConfigError."""
    return _parse(replace(RAYLOG_METRICS_ADDRESS, name="metrics_address").parse(text))


def metrics_settings(configs: Configs) -> MetricsSettings:
    return MetricsSettings(
        shown_at=_parse(configs[RAYLOG_METRICS_ADDRESS]), telemetry_bytes_max=configs[TELEMETRY_MAX_BYTES]
    )
