"""Fields of a request are checked: wrong types, huge numbers and long texts are refused with the field's name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.console.fields import Fields
from raylog.core.errors import ErrorCode, KafkaError


def test_values_of_queries_and_bodies() -> None:
    fields = Fields({"limit": "20", "start": 3, "names": "a, b,", "all": "true", "way": "up", "filter": "", "x": None})
    assert fields.number("limit") == 20
    assert fields.number("start") == 3
    assert fields.texts("names") == ["a", "b"]
    assert fields.flag("all")
    assert not fields.flag("none")
    assert fields.choice("way", {"up": 1, "down": -1}) == 1
    assert fields.choice("other", {"up": 1, "down": -1}, "down") == -1
    assert fields.text("filter", "default") == "default"
    assert fields.number("x", 7) == 7


@pytest.mark.parametrize(
    ("given", "read", "message"),
    [
        ({}, lambda f: f.text("name"), "name: must be given"),
        ({"name": ""}, lambda f: f.text("name"), "name: must be given"),
        ({"name": 3}, lambda f: f.text("name"), "name=3: must be a text"),
        ({"name": {"a": 1}}, lambda f: f.text("name"), "name=...: must be a text"),
        ({"name": "x" * 5000}, lambda f: f.text("name"), f"name='{'x' * 59}...: must have at most 4096 characters"),
        ({"name": "\ud800"}, lambda f: f.text("name"), "name='\\ud800': must be valid Unicode"),
        ({"n": "-1"}, lambda f: f.number("n"), "n='-1': must be a whole number between 0 and 9223372036854775807"),
        ({"n": "9" * 40}, lambda f: f.number("n", most=5), f"n='{'9' * 40}': must be a whole number between 0 and 5"),
        ({"n": 1 << 63}, lambda f: f.number("n"), "n=9223372036854775808: must be a whole number between"),
        ({"n": True}, lambda f: f.number("n"), "n=True: must be a whole number"),
        ({"n": "1.5"}, lambda f: f.number("n"), "must be a whole number"),
        ({"n": "٣"}, lambda f: f.number("n"), "must be a whole number"),
        ({"on": "maybe"}, lambda f: f.flag("on"), "on='maybe': must be true or false"),
        ({"way": "left"}, lambda f: f.choice("way", {"up": 1}), "way='left': must be one of up"),
        ({"way": ["up"]}, lambda f: f.choice("way", {"up": 1}), "way=...: must be one of up"),
        ({"names": [1]}, lambda f: f.texts("names"), "names=...: must be a list of texts"),
        ({"names": "a,b,c"}, lambda f: f.texts("names", entries_max=2), "must have at most 2 entries"),
        ({"configs": {"a": 1}}, lambda f: f.mapping("configs"), "configs=...: must be an object of texts"),
        ({"rows": ["a"]}, lambda f: f.objects("rows"), "rows=...: must be a list of objects"),
    ],
)
def test_refusals(given: dict[str, Any], read: Callable[[Fields], Any], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        read(Fields(given))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert message in refused.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    fields = Fields({"x": value})
    reads: list[Callable[[], Any]] = [
        lambda: fields.text("x"),
        lambda: fields.number("x"),
        lambda: fields.flag("x"),
        lambda: fields.choice("x", {"a": 1}),
        lambda: fields.texts("x"),
        lambda: fields.mapping("x"),
        lambda: fields.objects("x"),
    ]
    for read in reads:
        with suppress(KafkaError):
            read()
