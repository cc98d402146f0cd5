"""Entities, keys and values are checked as in Kafka, and a filter matches as DescribeClientQuotas defines."""

from __future__ import annotations

import math

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.quotas.client_quotas import ClientQuotas, entity
from raylog.quotas.definitions import check_key, check_value, checked_entity
from raylog.quotas.filters import ANY_NAME, DEFAULT_ONLY, EXACT, matching, parse_filter

USER = entity({"user": "u"})
IP = entity({"ip": "1.2.3.4"})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([("user", "a"), ("user", "b")], "duplicate entity entry user"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "u" * 1001)], "at most 1000 characters"),
        ([("ip", "1.2.3.4"), ("user", "u")], "Invalid empty client quota entity"),
        ([("ip", "localhost.example")], "is not a valid IP address"),
    ],
)
def test_invalid_entities_are_refused(parts: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        checked_entity(parts)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_entities_do_not_depend_on_order_and_spelling() -> None:
    assert checked_entity([("user", "u"), ("client-id", None)]) == entity({"client-id": None, "user": "u"})
    assert checked_entity([("ip", "::0001")]) == checked_entity([("ip", "::1")])
    assert checked_entity([("ip", "::ffff:10.0.0.1")]) == (("ip", "10.0.0.1"),)  # so its connections are reported
    assert checked_entity([("ip", None)]) == (("ip", None),)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
def test_values_must_be_positive_and_finite(key: str, value: float) -> None:
    with pytest.raises(KafkaError, match="must be greater than 0"):
        check_value(USER, key, value)


@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate"])
def test_byte_rates_are_whole_numbers(key: str) -> None:
    check_value(USER, key, 1000.0)
    check_value(USER, key, float(1 << 62))
    with pytest.raises(KafkaError, match="fractional"):
        check_value(USER, key, 1000.5)
    with pytest.raises(KafkaError, match="too large for a LONG"):
        check_value(USER, key, 1e19)


def test_percentages_and_mutation_rates_may_be_fractions() -> None:
    check_value(USER, "request_percentage", 12.5)
    check_value(USER, "controller_mutation_rate", 0.25)


def test_keys_belong_to_types_of_entities() -> None:
    check_value(IP, "connection_creation_rate", 7)
    for of, key in ((USER, "connection_creation_rate"), (IP, "producer_byte_rate"), (USER, "no_such_rate")):
        with pytest.raises(KafkaError, match=f"Invalid configuration key {key}"):
            check_key(of, key)
    with pytest.raises(KafkaError, match="too large for a INT"):
        check_value(IP, "connection_creation_rate", float(1 << 31))


ENTITIES = [
    entity({"user": "u"}),
    entity({"user": None}),
    entity({"user": "u", "client-id": "c"}),
    entity({"user": "u", "client-id": None}),
    entity({"client-id": "c"}),
    entity({"ip": "1.2.3.4"}),
]


def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[int]:
    quotas = ClientQuotas()
    for of in ENTITIES:
        quotas.set(of, "a", 1)
    return [ENTITIES.index(of) for of, _ in matching(quotas, parse_filter(components, strict=strict))]


def test_a_filter_matches_names_defaults_and_types() -> None:
    assert found() == [0, 1, 2, 3, 4, 5]
    assert found(strict=True) == []
    assert found(("user", EXACT, "u")) == [0, 2, 3]
    assert found(("user", EXACT, "u"), strict=True) == [0]
    assert found(("user", DEFAULT_ONLY, None)) == [1]
    assert found(("user", ANY_NAME, None)) == [0, 1, 2, 3]
    assert found(("user", ANY_NAME, None), strict=True) == [0, 1]
    assert found(("user", ANY_NAME, None), ("client-id", ANY_NAME, None), strict=True) == [2, 3]
    assert found(("user", EXACT, "u"), ("client-id", DEFAULT_ONLY, None)) == [3]
    assert found(("ip", ANY_NAME, None)) == found(("ip", EXACT, "::ffff:1.2.3.4")) == [5]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "u"), ("user", ANY_NAME, None)], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "g")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT_ONLY, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY_NAME, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY_NAME, None), ("user", ANY_NAME, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_filters_are_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        parse_filter(components, strict=False)
    assert refused.value.code == code
