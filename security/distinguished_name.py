"""The principal of a client with a certificate: its distinguished name, mapped by rules.

Source: RFC 2253 as Java's X500Principal writes it, and ssl.principal.mapping.rules (KIP-371).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from raylog.core.errors import ConfigError

_KEYWORDS: Final[dict[ObjectIdentifier, str]] = {
    NameOID.COMMON_NAME: "CN",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.COUNTRY_NAME: "C",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
"""The attributes that RFC 2253 names; others are written by their object identifier."""
_ESCAPES: Final = {"\0": "\\00"} | {each: f"\\{each}" for each in ',=+<>#;"\\'}
_SPACES: Final = " \r"
"""Escaped by Java at the start and at the end."""
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP: Final = re.compile(r"\\(.)|\$(\d)")


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate in DER format: CN=alice,OU=ServiceUsers,O=Org. Raises ValueError."""
    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    value = attribute.value
    if keyword is None or isinstance(value, bytes):
        return f"{attribute.oid.dotted_string}=#{_der(attribute).hex()}"
    return f"{keyword}={_escaped(value)}"


def _escaped(value: str) -> str:
    start, end = len(value) - len(value.lstrip(_SPACES)), len(value.rstrip(_SPACES))
    return "".join(
        _ESCAPES.get(each, each) if start <= position < end else f"\\{each}" for position, each in enumerate(value)
    )


def _der(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """The value with tag and length."""
    value = attribute.value
    data = value if isinstance(value, bytes) else value.encode()
    length = bytes([len(data)]) if len(data) < 0x80 else _long_length(len(data))
    return bytes([attribute._type.value]) + length + data


def _long_length(length: int) -> bytes:
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(size)]) + size


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None: DEFAULT, which matches every name."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        text = _GROUP.sub(lambda found: found[1] or match[int(found[2])] or "", self.replacement)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


class MappingRules:
    """ssl.principal.mapping.rules: the first rule that matches the whole distinguished name gives the name."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        self._rules: Sequence[_Rule] = _parse(text)

    def name_of(self, distinguished_name: str) -> str | None:
        """None if no rule matches."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position = 0
    while position < len(text) or not rules:
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules={text[:100]!r}: must be DEFAULT, or RULE:pattern/replacement/ with L or U"
                " at the end or nothing, separated by commas"
            )
        default, pattern, replacement, case = match.groups()
        rules.append(_Rule(None) if default else _rule(text, pattern, replacement, case))
        position = match.end()
    return rules


def _rule(text: str, pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules={text[:100]!r}: {error}") from error
    if any(int(group) > compiled.groups for _, group in _GROUP.findall(replacement) if group):
        raise ConfigError(f"ssl.principal.mapping.rules={text[:100]!r}: the pattern has only {compiled.groups} groups")
    return _Rule(compiled, replacement, case)
