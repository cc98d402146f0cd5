"""The most specific quota applies to a client, as in Kafka, and clients share the one of their user."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.quotas.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    ClientQuotas,
    Identity,
    QuotaEntity,
    entity,
)

ORDER: tuple[Mapping[str, str | None], ...] = (
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
)
"""The most specific one first. Source: Kafka's ClientQuotaManager."""


@given(st.sets(st.integers(0, 7)))
def test_the_most_specific_quota_applies(present: set[int]) -> None:
    quotas = ClientQuotas()
    for number in present:
        quotas.set(entity(ORDER[number]), PRODUCER_BYTE_RATE, number + 1.0)
    found = quotas.limit(PRODUCER_BYTE_RATE, "u", "c")
    assert (None if found is None else found.value) == (min(present) + 1 if present else None)
    assert quotas.limit(CONSUMER_BYTE_RATE, "u", "c") is None


@pytest.mark.parametrize("number", range(8))
def test_clients_share_a_quota_by_the_parts_that_it_names(number: int) -> None:
    quotas = ClientQuotas()
    quotas.set(entity(ORDER[number]), PRODUCER_BYTE_RATE, 1)
    found = quotas.limit(PRODUCER_BYTE_RATE, "u", "c")
    assert found is not None
    named = ORDER[number]
    assert found.identity == Identity("u" if "user" in named else None, "c" if "client-id" in named else None)


def test_other_clients_are_not_limited() -> None:
    quotas = ClientQuotas()
    for named in ORDER:
        if None not in named.values():
            quotas.set(entity(named), PRODUCER_BYTE_RATE, 1)
    assert quotas.limit(PRODUCER_BYTE_RATE, "other", "x") is None
    assert quotas.limit(PRODUCER_BYTE_RATE, "other", "c") is not None
    assert quotas.limit(PRODUCER_BYTE_RATE, "u", "x") is not None


entities = st.sampled_from([entity(each) for each in ORDER])
changes = st.lists(st.tuples(entities, st.sampled_from(["a", "b"]), st.none() | st.integers(1, 5)), max_size=40)


@given(changes)
def test_it_holds_what_was_set_and_not_removed(history: list[tuple[QuotaEntity, str, int | None]]) -> None:
    quotas, model = ClientQuotas(), dict[tuple[QuotaEntity, str], float]()
    for of, key, value in history:
        if value is not None:
            quotas.set(of, key, value)
            model[of, key] = value
        elif (of, key) in model:
            quotas.remove(of, key)
            del model[of, key]
    assert {(of, key): value for of, values in quotas.entries.items() for key, value in values.items()} == model
    assert quotas == quotas.copy()
    assert bool(quotas) == bool(model)
    for user in ("u", "other"):
        expected = any(key == "a" and dict(of).get("user") in (user, None) for of, key in model)
        assert quotas.may_limit("a", user) == expected
    for key, named in product(("a", "b"), ORDER):
        assert quotas.limits(key) == any(each == key for _, each in model)
        alone = model.get((entity(named), key))
        found = quotas.limit(key, "u", "c")
        assert alone is None or (found is not None and (found.rule != entity(named) or found.value == alone))


def test_an_address_has_its_own_limit_or_the_default() -> None:
    quotas = ClientQuotas()
    assert quotas.ip_limit("1.2.3.4") is None
    quotas.set((("ip", None),), CONNECTION_CREATION_RATE, 5)
    quotas.set((("ip", "1.2.3.4"),), CONNECTION_CREATION_RATE, 7)
    own, default = quotas.ip_limit("1.2.3.4"), quotas.ip_limit("::1")
    assert own is not None
    assert default is not None
    assert (own.value, default.value) == (7, 5)
    assert default.identity != own.identity
    assert quotas.ip_limit("unix:1000") is None
    assert quotas.ip_limit("ray") is None


@pytest.mark.parametrize("number", range(8))
def test_a_user_may_be_limited_if_any_client_id_is(number: int) -> None:
    quotas = ClientQuotas()
    quotas.set(entity(ORDER[number]), CONSUMER_BYTE_RATE, 1)
    assert quotas.may_limit(CONSUMER_BYTE_RATE, "u")
    assert quotas.may_limit(CONSUMER_BYTE_RATE, "other") == (ORDER[number].get("user") is None)
    assert not quotas.may_limit(PRODUCER_BYTE_RATE, "u")
