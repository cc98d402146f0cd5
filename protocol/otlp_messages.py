"""The messages of OTLP that carry metrics, as classes of Protobuf: the fields that are read or written, and no others.

They are declared here because the package opentelemetry-proto cannot be a dependency: without the rest of OpenTelemetry
beside it, Ray's dashboard does not start. Source: OpenTelemetry's metrics.proto, common.proto and resource.proto, v1.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

_PACKAGE: Final = "raylog.otlp"
_DOUBLE, _INT64, _BOOL, _STRING, _MESSAGE, _INT32, _SFIXED64, _FIXED64 = 1, 3, 8, 9, 11, 5, 16, 6
"""Types of fields, with the numbers of descriptor.proto."""


class _Field(NamedTuple):
    name: str
    number: int
    type: int | str
    """A number, or the name of a message."""
    repeated: bool = False
    oneof: str = ""
    """The group of fields of which one is set."""


_MESSAGES: Final[dict[str, tuple[_Field, ...]]] = {
    "AnyValue": (
        _Field("string_value", 1, _STRING, oneof="value"),
        _Field("bool_value", 2, _BOOL, oneof="value"),
        _Field("int_value", 3, _INT64, oneof="value"),
        _Field("double_value", 4, _DOUBLE, oneof="value"),
    ),
    "KeyValue": (_Field("key", 1, _STRING), _Field("value", 2, "AnyValue")),
    "Resource": (_Field("attributes", 1, "KeyValue", repeated=True),),
    "NumberDataPoint": (
        _Field("start_time_unix_nano", 2, _FIXED64),
        _Field("time_unix_nano", 3, _FIXED64),
        _Field("as_double", 4, _DOUBLE, oneof="value"),
        _Field("as_int", 6, _SFIXED64, oneof="value"),
        _Field("attributes", 7, "KeyValue", repeated=True),
    ),
    "Gauge": (_Field("data_points", 1, "NumberDataPoint", repeated=True),),
    "Sum": (
        _Field("data_points", 1, "NumberDataPoint", repeated=True),
        _Field("aggregation_temporality", 2, _INT32),
        _Field("is_monotonic", 3, _BOOL),
    ),
    "Metric": (
        _Field("name", 1, _STRING),
        _Field("description", 2, _STRING),
        _Field("gauge", 5, "Gauge", oneof="data"),
        _Field("sum", 7, "Sum", oneof="data"),
    ),
    "InstrumentationScope": (_Field("name", 1, _STRING),),
    "ScopeMetrics": (
        _Field("scope", 1, "InstrumentationScope"),
        _Field("metrics", 2, "Metric", repeated=True),
    ),
    "ResourceMetrics": (
        _Field("resource", 1, "Resource"),
        _Field("scope_metrics", 2, "ScopeMetrics", repeated=True),
    ),
    "MetricsData": (_Field("resource_metrics", 1, "ResourceMetrics", repeated=True),),
}


@cache
def message_class(name: str) -> Any:
    """The class of one of the messages above."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    # imported by the first push: many brokers never get one
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="raylog/otlp.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        oneofs = list(dict.fromkeys(each.oneof for each in fields if each.oneof))
        for oneof in oneofs:
            message.oneof_decl.add(name=oneof)
        for each in fields:
            is_message = isinstance(each.type, str)
            field = message.field.add(
                name=each.name,
                number=each.number,
                type=_MESSAGE if is_message else each.type,
                type_name=f".{_PACKAGE}.{each.type}" if is_message else None,
                label=FieldDescriptorProto.LABEL_REPEATED if each.repeated else FieldDescriptorProto.LABEL_OPTIONAL,
            )
            if each.oneof:
                field.oneof_index = oneofs.index(each.oneof)
    pool = DescriptorPool()
    pool.Add(file)
    return pool
