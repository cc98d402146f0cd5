"""Delegation tokens: the keys of brokers and controllers, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.core.config import ConfigKey, Configs, ConfigType, at_least
from raylog.core.password import Password

DELEGATION_TOKEN_SECRET_KEY: ConfigKey[Password | None] = ConfigKey(
    "delegation.token.secret.key",
    ConfigType.PASSWORD,
    None,
    "The key from which the secrets of delegation tokens are derived; the same for all brokers and controllers."
    " Without it, or if it is empty, delegation tokens are disabled. A changed key makes all tokens invalid.",
)
DELEGATION_TOKEN_MAX_LIFETIME_MS: ConfigKey[int] = ConfigKey(
    "delegation.token.max.lifetime.ms",
    ConfigType.LONG,
    604_800_000,
    "Longest lifetime of a delegation token, in milliseconds. It cannot be renewed beyond this.",
    at_least(1),
    cluster_wide=True,
)
DELEGATION_TOKEN_EXPIRY_TIME_MS: ConfigKey[int] = ConfigKey(
    "delegation.token.expiry.time.ms",
    ConfigType.LONG,
    86_400_000,
    "How long a delegation token is valid before it must be renewed, in milliseconds.",
    at_least(1),
    cluster_wide=True,
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "delegation.token.expiry.check.interval.ms",
    ConfigType.LONG,
    3_600_000,
    "How often the controller removes expired delegation tokens, in milliseconds. They are invalid before that.",
    at_least(1),
    cluster_wide=True,
)


@dataclass(frozen=True, slots=True)
class DelegationTokenSettings:
    secret_key: Password | None
    """None: delegation tokens are disabled."""
    max_lifetime_ms: int
    expiry_time_ms: int
    check_interval_ms: int


def delegation_token_settings(configs: Configs) -> DelegationTokenSettings:
    return DelegationTokenSettings(
        secret_key=_unless_empty(configs[DELEGATION_TOKEN_SECRET_KEY]),
        max_lifetime_ms=configs[DELEGATION_TOKEN_MAX_LIFETIME_MS],
        expiry_time_ms=configs[DELEGATION_TOKEN_EXPIRY_TIME_MS],
        check_interval_ms=configs[DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS],
    )


def _unless_empty(secret_key: Password | None) -> Password | None:
    return secret_key if secret_key is not None and secret_key.reveal() else None
