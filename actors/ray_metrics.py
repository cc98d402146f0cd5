"""(shell) Metrics of a cluster among those of Ray, which its dashboard and its Prometheus show: `ray_raylog_...`.

Ray keeps a series as long as the process that has set it lives. So only metrics of nodes are shown, and none that has a
series for each topic, partition, group or client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from raylog.core.metrics_text import series_of

SERIES_MAX: Final = 5_000
OF_MANY: Final = {"topic", "partition", "consumergroup", "client_id", "client_instance_id", "user", "logDirectory"}
"""Labels of metrics that have a series for each of something that there may be many of."""
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
TAGS: Final = ("cluster", "node")
PREFIX: Final = "raylog_"


class RayMetrics:
    """Of one cluster. Belongs to a process that is connected to Ray."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._gauges: dict[str, Any] = {}
        self._series: set[tuple[str, ...]] = set()

    def show(self, texts: Mapping[str, str]) -> None:
        """What the nodes have answered to a scrape, by node. Ray reports it by itself, every 10 s."""
        from ray.util.metrics import Gauge

        for node, text in texts.items():
            for metric, labels, value in series_of(text):
                names = tuple(name for name, _ in labels if name not in TAGS)
                if OF_MANY.intersection(names) or _NAME.fullmatch(metric.name) is None:
                    continue
                tags = {**dict(labels), "cluster": self._cluster, "node": dict(labels).get("node", node)}
                series = (metric.name, *tags.values())
                if series not in self._series:
                    if len(self._series) >= SERIES_MAX:
                        continue
                    self._series.add(series)
                gauge = self._gauges.get(metric.name)
                if gauge is None:
                    name = metric.name if metric.name.startswith(PREFIX) else f"{PREFIX}{metric.name}"
                    gauge = self._gauges[metric.name] = Gauge(name, metric.doc, (*TAGS, *names))
                gauge.set(value, tags)
