"""Metrics as a client pushes them, made by OpenTelemetry's own classes."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource


def attributes(**values: str | int) -> list[KeyValue]:
    return [
        KeyValue(key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value))
        for key, value in values.items()
    ]


def gauge(name: str, value: float, **labels: str | int) -> Metric:
    return Metric(
        name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=value, attributes=attributes(**labels))])
    )


def total(name: str, value: int, *, monotonic: bool = True, **labels: str | int) -> Metric:
    point = NumberDataPoint(as_int=value, attributes=attributes(**labels))
    return Metric(
        name=name,
        sum=Sum(
            data_points=[point], is_monotonic=monotonic, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE
        ),
    )


def payload(*metrics: Metric, **of_client: str | int) -> bytes:
    """`of_client` are the attributes of the resource."""
    resource = Resource(attributes=attributes(**of_client))
    scope = ScopeMetrics(metrics=metrics)
    encoded: bytes = MetricsData(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])]
    ).SerializeToString()
    return encoded
