"""A server.properties file is read as Java reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.config.properties import format_properties, parse_properties
from raylog.core.errors import ConfigError


def test_entries() -> None:
    text = """
# a comment
! another
num.partitions=3
log.retention.ms : 5
 broker.rack  a b\t
listeners=A://h:1,\\
    B://h:2
empty=
path=C:\\\\data
pem=one\\ntwo
snow=\\u2603
a\\=b=c=d
"""
    assert parse_properties(text) == {
        "num.partitions": "3",
        "log.retention.ms": "5",
        "broker.rack": "a b\t",
        "listeners": "A://h:1,B://h:2",
        "empty": "",
        "path": "C:\\data",
        "pem": "one\ntwo",
        "snow": "\u2603",
        "a=b": "c=d",
    }


def test_lines_end_as_in_java() -> None:
    assert parse_properties("a=1\rb=2\r\nc=3\n\n\rd=4") == {"a": "1", "b": "2", "c": "3", "d": "4"}
    assert parse_properties("a=1\\\r\n 2\\\r3") == {"a": "123"}
    inside = "1\x0b2\x1c3\x1d4\x1e5\x856\u20287\u20298"
    assert parse_properties(f"a={inside}\n") == {"a": inside}


def test_white_space_is_that_of_java() -> None:
    assert parse_properties("\f\t a \f=\t\fb\xa0\n\f\n \t# c") == {"a": "b\xa0"}
    assert parse_properties("\xa0a\x0b=\u3000b\\\n\f\xa0c") == {"\xa0a\x0b": "\u3000b\xa0c"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("=secret", "line 1: must be key=value"), ("\n\na=1\na=secret", "line 4: a is set twice")],
)
def test_an_error_names_the_line_but_not_the_value(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_properties(text)
    assert refused.value.message == message


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except ConfigError:
        pass


@given(st.dictionaries(st.from_regex(r"[a-z.]+", fullmatch=True), st.from_regex(r"[a-z0-9:=#!]*", fullmatch=True)))
def test_written_properties_are_read_back(entries: dict[str, str]) -> None:
    written = "\n".join(f"{key}={value}" for key, value in entries.items())
    assert parse_properties(written) == entries


def test_a_continuation_at_the_end_of_the_file() -> None:
    assert parse_properties("a=b\\") == {"a": "b"}
    assert len(parse_properties("a=" + "x,\\\n" * 10_000)["a"]) == 20_000


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.dictionaries(TEXTS.filter(bool), TEXTS))
def test_what_is_written_is_read_again(entries: dict[str, str]) -> None:
    text = format_properties(entries)
    assert parse_properties(text) == entries
    assert text.isascii()  # Java reads these files as ISO 8859-1
