"""Java's properties format, in which Kafka's server.properties is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from raylog.core.config import shown_name
from raylog.core.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\r|\n")
_SPACE: Final = " \t\f"
_ENTRY = re.compile(r"(?P<key>(?:[^ \t\f=:\\]|\\.)+)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_CONTINUED = re.compile(r"(?:^|[^\\])(?:\\\\)*\\$")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_WRITTEN: Final = {"\\": "\\\\", **{character: f"\\{letter}" for letter, character in _ESCAPED.items()}}


def parse_properties(text: str) -> dict[str, str]:
    """`key=value` lines, comments behind # or !, lines continued with a backslash, Java's escapes.

    Raises ConfigError that names the line, but never its value, which may be a password.
    """
    entries: dict[str, str] = {}
    lines = iter(enumerate(_LINE_END.split(text), start=1))
    for number, line in lines:
        parts = [line.lstrip(_SPACE)]
        if not parts[0] or parts[0][0] in "#!":
            continue
        while _CONTINUED.search(parts[-1]):
            parts[-1] = parts[-1][:-1]
            parts.append(next(lines, (0, ""))[1].lstrip(_SPACE))
        match = _ENTRY.fullmatch("".join(parts))
        if match is None:
            raise ConfigError(f"line {number}: must be key=value")
        key = _plain(match["key"])
        if key in entries:
            raise ConfigError(f"line {number}: {shown_name(key)} is set twice")
        entries[key] = _plain(match["value"])
    return entries


def _plain(text: str) -> str:
    """Without escapes; a pair of surrogates is one character."""
    plain = _ESCAPE.sub(_unescaped, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)


def format_properties(entries: Mapping[str, str]) -> str:
    """Lines that Java and `parse_properties` read as these entries."""
    return "".join(f"{_escaped(name, ' =:#!')}={_escaped(value, '')}\n" for name, value in entries.items())


def _escaped(text: str, special: str) -> str:
    written = []
    for place, character in enumerate(text):
        if character in _WRITTEN:
            written.append(_WRITTEN[character])
        elif character in special or (character == " " and place == 0):
            written.append(f"\\{character}")
        elif " " <= character <= "~":
            written.append(character)
        else:
            units = character.encode("utf-16-be")
            written += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(written)
