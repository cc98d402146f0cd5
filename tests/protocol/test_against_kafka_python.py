"""kafka-python reads our messages with Kafka's names and values, and we read and write its messages unchanged."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from raylog.core.errors import ErrorCode
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol import codec
from raylog.protocol.header import encode_request_header, encode_response_header
from raylog.protocol.messages.api_versions import ApiVersionsResponse
from tests.protocol.messages import MESSAGES, UNKNOWN_TO_KAFKA_PYTHON, structures, versions

SHOWN_AS_A_SET = "authorized_operations"  # kafka-python turns this number into the set of its bits
PACKAGES = ("kafka.protocol.producer", "kafka.protocol.consumer", "kafka.protocol.metadata", "kafka.protocol.admin")


def kafka_python_class(name: str) -> Any:
    for package in (*PACKAGES, "kafka.protocol.sasl"):
        found = getattr(importlib.import_module(package), name, None)
        if found is not None:
            return found
    return None


def values_in(message: Any, version: int) -> list[Any]:
    """The scalars of one of our messages in wire order; structures and arrays are flattened."""
    plain, tagged = codec.declared(type(message), version)
    names = [each.name for each, _ in plain + tagged if not each.name.endswith(SHOWN_AS_A_SET)]
    return [leaf for name in names for leaf in leaves(getattr(message, name), version)]


def leaves(value: Any, version: int) -> list[Any]:
    if hasattr(type(value), "__dataclass_fields__"):
        return values_in(value, version)
    if isinstance(value, tuple):
        return [leaf for each in value for leaf in leaves(each, version)]
    if isinstance(value, memoryview):
        return [bytes(value)] if len(value) else []
    return [] if value in (None, b"", ZERO_TOPIC_ID) else [value]


def their_leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        shown = [each for name, each in value.items() if not name.endswith(SHOWN_AS_A_SET)]
        return [leaf for each in shown for leaf in their_leaves(each)]
    if isinstance(value, (list, tuple, set)):
        return [leaf for each in value for leaf in their_leaves(each)]
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    return [] if value in (None, b"", ZERO_TOPIC_ID) else [value]


@pytest.mark.parametrize("cls", MESSAGES)
def test_messages_are_equal_in_both_directions(cls: type[Any]) -> None:
    theirs = kafka_python_class(cls.__name__)
    if cls.api.key in UNKNOWN_TO_KAFKA_PYTHON:
        assert theirs is None, "from now on it can be held against theirs"
        return
    assert theirs is not None
    for version in versions(cls):
        _compare(cls, theirs, version)


def _compare(cls: type[Any], theirs: Any, version: int) -> None:
    @settings(max_examples=3, deadline=None)
    @given(structures(cls, version))
    def check(message: Any) -> None:
        if cls is ApiVersionsResponse:  # which kafka-python reads as v0 when it carries an error
            message = replace(message, error_code=ErrorCode.NONE)
        key = cls.api.key
        if cls.__name__.endswith("Request"):
            header = encode_request_header(key, version, correlation_id=77, client_id="me")
        else:
            header = encode_response_header(key, version, correlation_id=77)
        raw = header + codec.encode(message, version)
        found = theirs.decode(raw, version=version, header=True)
        assert found.header.correlation_id == 77
        assert bytes(found.encode(header=True)) == raw
        # their order is that of the schema file, in which tagged fields stand anywhere
        assert Counter(their_leaves(found.to_dict(json=False))) == Counter(values_in(message, version))

    check()
