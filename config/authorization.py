"""Authorization: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from raylog.core.config import ConfigKey, Configs, ConfigType

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PRINCIPAL = re.compile(r"[^:]+:.+")


def _principals(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(";") if each.strip())


AUTHORIZER_CLASS_NAME: ConfigKey[str] = ConfigKey(
    "authorizer.class.name",
    ConfigType.STRING,
    "",
    f"{STANDARD_AUTHORIZER} checks every request against the access control lists in the cluster's metadata."
    " If empty, every client is allowed everything.",
    lambda name: None if name in ("", STANDARD_AUTHORIZER) else f"must be empty or {STANDARD_AUTHORIZER}",
)
SUPER_USERS: ConfigKey[str] = ConfigKey(
    "super.users",
    ConfigType.STRING,
    "",
    "Semicolon-separated list of principals that are allowed everything, such as User:alice;User:bob.",
    lambda text: None if all(map(_PRINCIPAL.fullmatch, _principals(text))) else "must be Type:name;Type:name",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: ConfigKey[bool] = ConfigKey(
    "allow.everyone.if.no.acl.found",
    ConfigType.BOOLEAN,
    False,
    "Whether every client is allowed everything on a resource that no access control list matches. If false, only"
    " super users are.",
)


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    super_users: tuple[str, ...]
    """Each as `Type:name`."""
    allow_if_no_acl: bool


def authorizer_settings(configs: Configs) -> AuthorizerSettings | None:
    """None without an authorizer."""
    if not configs[AUTHORIZER_CLASS_NAME]:
        return None
    return AuthorizerSettings(
        super_users=_principals(configs[SUPER_USERS]),
        allow_if_no_acl=configs[ALLOW_EVERYONE_IF_NO_ACL_FOUND],
    )
