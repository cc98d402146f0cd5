"""JSON from a file is refused with ValueError if it is malformed, nested too deeply, or not text that can be sent."""

from __future__ import annotations

import pytest

from raylog.core.json_text import parse_json


def test_values() -> None:
    assert parse_json('{"a": [1, "\\u00e9\\ud83d\\ude00"]}') == {"a": [1, "é😀"]}
    assert parse_json(b'"\xc3\xa9"') == "é"


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 100_000, '"\\ud800"', '{"\\udcff": 1}', b'["\xed\xa0\x80"]'])
def test_what_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
