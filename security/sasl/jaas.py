"""Kafka's `sasl.jaas.config`: a login module with its options, as Java writes them.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob='other';

Source: Java's documentation of JAAS configuration files, and Kafka's of sasl.jaas.config, which permits one entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from raylog.core.errors import ConfigError

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([A-Za-z0-9_.$\-]+)|([=;]))""", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module. Its options may be secret, so that they are not shown."""

    module: str
    """The name of its Java class."""
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, {', '.join(self.options)})"


def parse_jaas(text: str) -> JaasEntry:
    """Raises ConfigError, which quotes nothing of the text."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";" or ";" in tokens[:-1]:
        raise _invalid("must be one login module, a control flag such as required, options, and a semicolon")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise _invalid("each option must be name=value")
    for name, equals, value in zip(rest[0::3], rest[1::3], rest[2::3], strict=True):
        if equals != "=" or value == "=" or name == "=":
            raise _invalid("each option must be name=value")
        if name in options:
            raise _invalid("an option is given twice")
        options[_plain(name)] = _plain(value)
    return JaasEntry(_plain(tokens[0]), options)


def _tokens(text: str) -> list[str]:
    """Each token; a quoted one begins with a quote, so that `";"` differs from the semicolon that ends the entry."""
    tokens, position = [], 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _invalid("a quote is not closed, or a character must be quoted")
        double, single, bare, sign = match.groups()
        quoted = double if double is not None else single
        tokens.append((bare or sign) if quoted is None else '"' + _ESCAPE.sub(r"\1", quoted))
        position = match.end()
    return tokens


def _plain(token: str) -> str:
    return token.removeprefix('"')


def _invalid(rule: str) -> ConfigError:
    return ConfigError(f"sasl.jaas.config: {rule}")
