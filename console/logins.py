"""Logins of the page: whether one is needed, and the properties of clients that have one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raylog.config.client import SASL_JAAS_CONFIG, SASL_MECHANISM, SECURITY_PROTOCOL
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password

MODULES: Final = {
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
}
"""The mechanisms by which a user and a password log in."""
NAME_CHARACTERS_MAX: Final = 1_024


def needs_login(properties: Mapping[str, str | Password]) -> bool:
    """Whether the listener that these properties of a client name has SASL."""
    return str(properties.get(SECURITY_PROTOCOL.name, "")).upper().startswith("SASL_")


def anonymous(properties: Mapping[str, str | Password]) -> dict[str, str | Password]:
    """The properties without an identity that logs in by SASL: the console has none of its own."""
    return {name: value for name, value in properties.items() if not name.startswith("sasl.")}


def mechanisms(properties: Mapping[str, str | Password]) -> list[str]:
    """Those that the page offers, with the one that the properties name first."""
    named = str(properties.get(SASL_MECHANISM.name, ""))
    return sorted(MODULES, key=lambda each: each != named)


def logged_in(
    properties: Mapping[str, str | Password], *, user: str, password: str, mechanism: str
) -> dict[str, str | Password]:
    """The properties of clients that log in as this user. Raises KafkaError(INVALID_REQUEST)."""
    if mechanism not in MODULES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"mechanism={mechanism[:40]!r}: must be one of {', '.join(MODULES)}"
        )
    if not user or not password:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a user and a password must be given")
    if max(len(user), len(password)) > NAME_CHARACTERS_MAX or "\0" in user + password:
        rule = f"must have at most {NAME_CHARACTERS_MAX} characters, none of them NUL"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"user and password: {rule}")
    jaas = f"{MODULES[mechanism]} required username={_quoted(user)} password={_quoted(password)};"
    own: dict[str, str | Password] = {SASL_MECHANISM.name: mechanism, SASL_JAAS_CONFIG.name: Password(jaas)}
    return anonymous(properties) | own


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
