"""JSON from a file is refused with ValueError if it is malformed, nested too deeply, or not text that can be sent."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.json_text import element_of, field_of, parse_json


def test_values() -> None:
    assert parse_json('{"a": [1, "\\u00e9\\ud83d\\ude00"]}') == {"a": [1, "é😀"]}
    assert parse_json(b'"\xc3\xa9"') == "é"


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 100_000, '"\\ud800"', '{"\\udcff": 1}', b'["\xed\xa0\x80"]'])
def test_what_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_fields() -> None:
    assert field_of({"a": "text"}, "a", str, at="it") == "text"
    assert element_of(7, int, at="it") == 7


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([], r"entries\[3\] must be an object, not \[\]"),
        ("x" * 10_000, r"entries\[3\] must be an object, not \"x{99}$"),
        ({}, r"entries\[3\] has no field 'a'"),
        ({"a": True}, r"'a' of entries\[3\] must be a whole number, not true"),
        ({"a": "7"}, r"'a' of entries\[3\] must be a whole number, not \"7\""),
        ({"a": None}, r"'a' of entries\[3\] must be a whole number, not null"),
    ],
)
def test_fields_that_are_missing_or_of_another_type(entry: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        field_of(entry, "a", int, at="entries[3]")
