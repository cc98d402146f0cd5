"""SASL OAUTHBEARER: the broker's keys for signed tokens, and the settings that are made from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from raylog.core.config import INT_MAX, LONG_MAX, ConfigKey, Configs, ConfigType, between

_OAUTHBEARER_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
SIGNED_TOKENS: Final = (
    f"{_OAUTHBEARER_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTHBEARER_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's names, of which the second is that of older versions."""
UNSECURED_TOKENS: Final = f"{_OAUTHBEARER_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_URL: Final = re.compile(r"(https?://[^/?#]+|file:///)[^\s#]*")

JWKS_ENDPOINT_URL: ConfigKey[str] = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.url",
    ConfigType.STRING,
    "",
    "Where the broker gets the keys (JWKS) with which tokens of OAUTHBEARER are signed: an https:, http: or file: URL.",
    lambda url: (
        None
        if not url or (_URL.fullmatch(url) and "@" not in url)
        else "must be an https:, http: or file: URL without user and password"
    ),
    per_listener=True,
    per_mechanism=True,
)
JWKS_ENDPOINT_REFRESH_MS: ConfigKey[int] = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    ConfigType.LONG,
    3_600_000,
    "How often the broker gets the keys again, in milliseconds. A token that names an unknown key makes it do so"
    " earlier.",
    between(100, LONG_MAX),
    per_listener=True,
    per_mechanism=True,
)
JWKS_ENDPOINT_RETRY_BACKOFF_MS: ConfigKey[int] = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    ConfigType.LONG,
    100,
    "How long the broker waits before it gets the keys again after a failure, or for an unknown key, in milliseconds."
    " Doubled each time, up to sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms.",
    between(10, LONG_MAX),
    per_listener=True,
    per_mechanism=True,
)
JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS: ConfigKey[int] = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    ConfigType.LONG,
    10_000,
    "Upper limit of sasl.oauthbearer.jwks.endpoint.retry.backoff.ms when it is doubled, in milliseconds.",
    between(10, LONG_MAX),
    per_listener=True,
    per_mechanism=True,
)
EXPECTED_AUDIENCE: ConfigKey[tuple[str, ...]] = ConfigKey(
    "sasl.oauthbearer.expected.audience",
    ConfigType.LIST,
    (),
    "Comma-separated list of audiences, one of which a signed token must contain. If empty, the audience is not"
    " checked.",
    per_listener=True,
    per_mechanism=True,
)
EXPECTED_ISSUER: ConfigKey[str] = ConfigKey(
    "sasl.oauthbearer.expected.issuer",
    ConfigType.STRING,
    "",
    "The issuer that a signed token must contain. If empty, the issuer is not checked.",
    per_listener=True,
    per_mechanism=True,
)
CLOCK_SKEW_SECONDS: ConfigKey[int] = ConfigKey(
    "sasl.oauthbearer.clock.skew.seconds",
    ConfigType.INT,
    30,
    "How much the clocks of the broker and of the issuer of signed tokens may differ, in seconds.",
    between(0, INT_MAX),
    per_listener=True,
    per_mechanism=True,
)
SCOPE_CLAIM_NAME: ConfigKey[str] = ConfigKey(
    "sasl.oauthbearer.scope.claim.name",
    ConfigType.STRING,
    "scope",
    "The claim of a signed token that contains its scope, as a text or a list of texts; any other value is refused.",
    lambda name: None if name else "must not be empty",
    per_listener=True,
    per_mechanism=True,
)
SUB_CLAIM_NAME: ConfigKey[str] = ConfigKey(
    "sasl.oauthbearer.sub.claim.name",
    ConfigType.STRING,
    "sub",
    "The claim of a signed token that contains the name of the user.",
    lambda name: None if name else "must not be empty",
    per_listener=True,
    per_mechanism=True,
)


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """OAUTHBEARER with signed tokens."""

    keys_url: str
    keys_refresh_ms: int
    keys_backoff_ms: int
    keys_backoff_max_ms: int
    audiences: tuple[str, ...]
    issuer: str
    clock_skew_ms: int
    scope_claim: str
    subject_claim: str


def token_settings(configs: Configs) -> TokenSettings:
    return TokenSettings(
        keys_url=configs[JWKS_ENDPOINT_URL],
        keys_refresh_ms=configs[JWKS_ENDPOINT_REFRESH_MS],
        keys_backoff_ms=configs[JWKS_ENDPOINT_RETRY_BACKOFF_MS],
        keys_backoff_max_ms=configs[JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS],
        audiences=configs[EXPECTED_AUDIENCE],
        issuer=configs[EXPECTED_ISSUER],
        clock_skew_ms=configs[CLOCK_SKEW_SECONDS] * 1000,
        scope_claim=configs[SCOPE_CLAIM_NAME],
        subject_claim=configs[SUB_CLAIM_NAME],
    )
