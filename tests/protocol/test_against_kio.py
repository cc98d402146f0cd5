"""kio, an independent codec generated from Kafka's schemas, writes the same bytes and reads the same values."""

from __future__ import annotations

import importlib
import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import kio.schema.errors
import pytest
from hypothesis import given, settings
from kio.serial import entity_reader, entity_writer

from raylog.protocol import codec
from raylog.protocol.schema import Wire
from tests.protocol.messages import MESSAGES, TIMES_MS, structures, versions

EXPRESSED_BY_KIO = dict.fromkeys(
    ("transaction_start_time_ms", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), TIMES_MS
)
"""Kafka answers -1 for a transaction that has not begun, and for a token that was not created. kio has no value for
that: the field is a date to it, and it refuses to read one before 1970. The round trip of test_codec.py draws -1 as
well."""


def kio_class(cls: type[Any], version: int) -> type[Any]:
    from kio.schema.index import api_key_map

    module = importlib.import_module(f"kio.schema.{api_key_map[cls.api.key]}.v{version}")
    found: type[Any] = getattr(module, cls.__name__)
    return found


def to_kio(message: Any, kio_cls: type[Any], version: int) -> Any:
    """Ours as theirs; the fields are matched by their order on the wire, so names do not matter here."""
    plain, tagged = codec.declared(type(message), version)
    ours = [(each.name, how) for each, how in plain + tagged]
    theirs = sorted(fields(kio_cls), key=lambda each: each.metadata.get("tag", -1))
    assert len(ours) == len(theirs), (ours, theirs)
    values = {}
    for (name, how), their in zip(ours, theirs, strict=True):
        assert how.tag == their.metadata.get("tag")
        values[their.name] = converted(getattr(message, name), how, their, version)
    return kio_cls(**values)


def converted(value: Any, how: Wire, their: Any, version: int) -> Any:
    if isinstance(how.element, type):
        inner = inner_class(their.type)
        if value is None:
            return None
        return tuple(to_kio(each, inner, version) for each in value) if how.is_array else to_kio(value, inner, version)
    match their.metadata["kafka_type"]:
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
        case "error_code":
            return kio.schema.errors.ErrorCode(value)
        case "uuid" if not how.is_array:
            return value if value.int else None
        case "records":
            return value if value is None else b"".join(value if isinstance(value, tuple) else (value,))
        case _:
            return value


def inner_class(hint: Any) -> type[Any]:
    """The structure in `X`, `X | None`, `tuple[X, ...]` and `tuple[X, ...] | None`."""
    while not (isinstance(hint, type) and hasattr(hint, "__version__")):
        hint = hint.__args__[0]
    return hint


@pytest.mark.parametrize("cls", MESSAGES)
def test_both_write_the_same_bytes_and_read_the_same_values(cls: type[Any]) -> None:
    for version in versions(cls):
        _compare(cls, version)


def _compare(cls: type[Any], version: int) -> None:
    theirs = kio_class(cls, version)
    write, read = entity_writer(theirs), entity_reader(theirs)

    @settings(max_examples=8, deadline=None)
    @given(structures(cls, version, EXPRESSED_BY_KIO))
    def check(message: Any) -> None:
        expected = to_kio(message, theirs, version)
        out = io.BytesIO()
        write(out, expected)
        raw = out.getvalue()
        assert codec.encode(message, version) == raw
        assert codec.decode(cls, version, memoryview(raw)) == message
        found, size = read(raw, 0)
        assert size == len(raw)
        assert found == expected

    check()
