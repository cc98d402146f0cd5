"""Metrics as a client pushes them."""

from __future__ import annotations

from typing import Any

from raylog.protocol.otlp_messages import message_class

CUMULATIVE = 2


def attributes(**values: str | int) -> list[Any]:
    return [
        message_class("KeyValue")(
            key=key,
            value=message_class("AnyValue")(int_value=value)
            if isinstance(value, int)
            else message_class("AnyValue")(string_value=value),
        )
        for key, value in values.items()
    ]


def gauge(name: str, value: float, **labels: str | int) -> Any:
    return message_class("Metric")(
        name=name,
        gauge=message_class("Gauge")(
            data_points=[message_class("NumberDataPoint")(as_double=value, attributes=attributes(**labels))]
        ),
    )


def total(name: str, value: int, *, monotonic: bool = True, **labels: str | int) -> Any:
    point = message_class("NumberDataPoint")(as_int=value, attributes=attributes(**labels))
    return message_class("Metric")(
        name=name,
        sum=message_class("Sum")(data_points=[point], is_monotonic=monotonic, aggregation_temporality=CUMULATIVE),
    )


def payload(*metrics: Any, **of_client: str | int) -> bytes:
    """`of_client` are the attributes of the resource."""
    resource = message_class("Resource")(attributes=attributes(**of_client))
    scope = message_class("ScopeMetrics")(metrics=metrics)
    encoded: bytes = message_class("MetricsData")(
        resource_metrics=[message_class("ResourceMetrics")(resource=resource, scope_metrics=[scope])]
    ).SerializeToString()
    return encoded
