"""Java's properties format, in which Kafka's server.properties is written."""

from __future__ import annotations

import re
from typing import Final

from raylog.core.config import shown_name
from raylog.core.errors import ConfigError

_ENTRY = re.compile(r"(?P<key>(?:[^\s=:\\]|\\.)+)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_CONTINUED = re.compile(r"(?:^|[^\\])(?:\\\\)*\\$")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """`key=value` lines, comments behind # or !, lines continued with a backslash, Java's escapes.

    Raises ConfigError that names the line, but never its value, which may be a password.
    """
    entries: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        parts = [line.lstrip()]
        if not parts[0] or parts[0][0] in "#!":
            continue
        while _CONTINUED.search(parts[-1]):
            parts[-1] = parts[-1][:-1]
            parts.append(next(lines, (0, ""))[1].lstrip())
        match = _ENTRY.fullmatch("".join(parts))
        if match is None:
            raise ConfigError(f"line {number}: must be key=value")
        key = _ESCAPE.sub(_unescaped, match["key"])
        if key in entries:
            raise ConfigError(f"line {number}: {shown_name(key)} is set twice")
        entries[key] = _ESCAPE.sub(_unescaped, match["value"])
    return entries


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)
