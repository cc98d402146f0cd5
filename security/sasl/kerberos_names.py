"""Short names of Kerberos principals, by the rules of sasl.kerberos.principal.to.local.rules.

    DEFAULT                                        alice@REALM, alice/host@REALM -> alice, in the default realm only
    RULE:[2:$1/$2@$0](.*admin@.*)s/pattern/to/g/L  [components:format](full match)s/substitution/, /L or /U: case

The first rule that applies decides. Source: Kafka's documentation, KerberosShortNamer, KIP-309 and KIP-432. Regular
expressions are Python's, which differ from Java's in rare constructs only; replacements are written as in Java ($1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from raylog.core.config import shown
from raylog.core.errors import ConfigError

DEFAULT_RULES: Final = ("DEFAULT",)
_PRINCIPAL: Final = re.compile(r"([^/@]+)(?:/([^/@]+))?@([^/@]+)")
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)"
    r"|RULE:\[(?P<components>[0-9]):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_FORMAT_PART: Final = re.compile(r"\$([0-9]+)|([^$]+)")
_NOT_SIMPLE: Final = re.compile("[/@]")

Substitution = Callable[[re.Match[str]], str]


class NoShortName(Exception):
    """No rule gives this principal a short name."""


class ShortNames:
    """The rules of a listener."""

    def __init__(self, rules: Sequence[str], *, default_realm: str) -> None:
        """Raises ConfigError for an invalid rule."""
        self._rules = [_parse(text, default_realm) for text in rules or DEFAULT_RULES]

    def of(self, principal: str) -> str:
        """The short name of `name@REALM` or `name/host@REALM`. Raises NoShortName."""
        match = _PRINCIPAL.fullmatch(principal)
        if match is None:
            raise NoShortName(f"{shown(principal)} is no principal with one or two components and a realm")
        name, host, realm = match.groups()
        parts = (realm, name) if host is None else (realm, name, host)
        for rule in self._rules:
            short_name = rule(parts)
            if short_name is None:
                continue
            if not short_name or _NOT_SIMPLE.search(short_name):
                raise NoShortName(f"{shown(principal)} becomes {shown(short_name)}, which is no short name")
            return short_name
        raise NoShortName(f"no rule applies to {shown(principal)}")


_Rule = Callable[[tuple[str, ...]], str | None]


def _parse(text: str, default_realm: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise _invalid(text, "must be DEFAULT or RULE:[n:format](regexp)s/pattern/replacement/g/L")
    if match["default"]:
        return lambda parts: parts[1] if parts[0] == default_realm else None
    count = int(match["components"])
    if "".join(part[0] for part in _FORMAT_PART.finditer(match["format"])) != match["format"] or any(
        int(part[1]) > count for part in _FORMAT_PART.finditer(match["format"]) if part[1]
    ):
        raise _invalid(text, f"its format may contain $0 to ${count}")
    pattern = _compiled(text, match["pattern"])
    return _ComponentRule(
        count=count,
        format=match["format"],
        full_match=_compiled(text, match["match"]),
        pattern=pattern,
        substitution=None if pattern is None else _java_replacement(text, match["replacement"], pattern.groups),
        all_occurrences=bool(match["all"]),
        case=match["case"] or "",
    )


@dataclass(frozen=True, slots=True)
class _ComponentRule:
    """RULE:[count:format](full_match)s/pattern/substitution/all_occurrences/case"""

    count: int
    format: str
    full_match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    substitution: Substitution | None
    all_occurrences: bool
    case: str

    def __call__(self, parts: tuple[str, ...]) -> str | None:
        if len(parts) - 1 != self.count:
            return None
        base = _FORMAT_PART.sub(lambda part: parts[int(part[1])] if part[1] else part[2], self.format)
        if self.full_match is not None and not self.full_match.fullmatch(base):
            return None
        if self.pattern is not None and self.substitution is not None:
            base = self.pattern.sub(self.substitution, base, count=0 if self.all_occurrences else 1)
        if _NOT_SIMPLE.search(base):
            return base
        return {"L": base.lower(), "U": base.upper()}.get(self.case, base)


def _java_replacement(rule: str, text: str, groups: int) -> Substitution:
    """`$n` is a group, with as many digits as there are groups for; a backslash takes the next character literally."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character not in "$\\":
            parts.append(character)
            continue
        digits = re.match(r"[0-9]+" if character == "$" else ".", text[position:])
        if digits is None:
            raise _invalid(rule, "its replacement contains a $ without a number, or ends with a backslash")
        if character == "\\":
            parts.append(digits[0])
            position += 1
            continue
        length = 1
        while length < len(digits[0]) and int(digits[0][: length + 1]) <= groups:
            length += 1
        if int(digits[0][:length]) > groups:
            raise _invalid(rule, f"its pattern has {groups} groups")
        parts.append(int(digits[0][:length]))
        position += length
    return lambda match: "".join((match[part] or "") if isinstance(part, int) else part for part in parts)


def _compiled(rule: str, pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise _invalid(rule, f"invalid regular expression: {error}") from None


def _invalid(text: str, rule: str) -> ConfigError:
    return ConfigError(f"sasl.kerberos.principal.to.local.rules={shown(text)}: {rule}")
