"""Metrics of nodes as requests for an OTLP receiver over HTTP: ExportMetricsServiceRequest in Protobuf.

The request has the same bytes as MetricsData, in pieces of bounded length. A counter is a cumulative, monotonic Sum
since the start of its process. Source: OpenTelemetry, metrics_service.proto v1 and OTLP/HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import isfinite
from typing import Any, Final

from raylog.core.metrics import Kind
from raylog.core.metrics_text import Series, series_of
from raylog.protocol.otlp_messages import message_class

POINTS_MAX: Final = 2_000
"""Data points of one request: some 300 KB."""
CUMULATIVE: Final = 2
NS_PER_SECOND: Final = 1_000_000_000
STARTED: Final = "process_start_time_seconds"


def export_requests(text: str, *, cluster: str, node: str, now_ns: int) -> Iterator[bytes]:
    """The requests for what a node has answered to a scrape, as of `now_ns` since 1970."""
    started_ns = next((int(each.value * NS_PER_SECOND) for each in series_of(text) if each.metric.name == STARTED), 0)
    series = (each for each in series_of(text) if isfinite(each.value))
    while part := list(islice(series, POINTS_MAX)):
        request = message_class("MetricsData")()
        of_node = request.resource_metrics.add()
        own = {"service.name": "raylog", "service.namespace": cluster, "service.instance.id": node}
        _add_attributes(of_node.resource, own.items())
        scope = of_node.scope_metrics.add()
        scope.scope.name = "raylog"
        _add_metrics(scope, part, started_ns=started_ns, now_ns=now_ns)
        yield request.SerializeToString()


def _add_metrics(scope: Any, part: list[Series], *, started_ns: int, now_ns: int) -> None:
    shown: dict[str, Any] = {}
    for each in part:
        metric = each.metric
        data = shown.get(metric.name)
        if data is None:
            made = scope.metrics.add(name=metric.name, description=metric.doc)
            data = shown[metric.name] = made.sum if metric.kind is Kind.COUNTER else made.gauge
            if metric.kind is Kind.COUNTER:
                data.aggregation_temporality, data.is_monotonic = CUMULATIVE, True
        start_ns = started_ns if metric.kind is Kind.COUNTER else 0
        point = data.data_points.add(time_unix_nano=now_ns, start_time_unix_nano=start_ns, as_double=each.value)
        _add_attributes(point, each.labels)


def _add_attributes(message: Any, labels: Iterable[tuple[str, str]]) -> None:
    for name, value in labels:
        attribute = message.attributes.add(key=name)
        attribute.value.string_value = value
