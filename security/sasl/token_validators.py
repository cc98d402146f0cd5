"""Which tokens a listener accepts by OAUTHBEARER: signed ones, or unsecured ones. Both are `TokenValidator`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from raylog.core.clock import Now
from raylog.core.config import shown_name
from raylog.core.errors import ConfigError
from raylog.security.sasl.json_web_tokens import TokenRules, validate_signed, validate_unsecured
from raylog.security.sasl.key_cache import KeyCache
from raylog.security.sasl.mechanism import Identity
from raylog.security.sasl.oauthbearer import TokenRefusal, TokenRefused

_OPTION_PREFIX: Final = "unsecuredValidator"
_CLOCK_SKEW_DIGITS_MAX: Final = 18


class SignedTokens:
    """The keys are those of `cache`, which a token with an unknown key may have fetched again."""

    def __init__(self, cache: KeyCache, rules: TokenRules, now: Callable[[], Now]) -> None:
        self.cache = cache
        self._rules = rules
        self._now = now

    def begin(self, token: str) -> Callable[[], Identity]:
        keys = self.cache.keys
        if keys is None:
            return _without_keys
        return partial(validate_signed, token, keys, self._rules, now_ms=self._now().wall_ms)

    def refused(self, refusal: TokenRefusal) -> None:
        if refusal.unknown_key:
            self.cache.key_missing()


class UnsecuredTokens:
    """Anybody can make these: for tests."""

    def __init__(self, rules: TokenRules, now: Callable[[], Now]) -> None:
        self._rules = rules
        self._now = now

    def begin(self, token: str) -> Callable[[], Identity]:
        return partial(validate_unsecured, token, self._rules, now_ms=self._now().wall_ms)

    def refused(self, refusal: TokenRefusal) -> None:
        pass


def unsecured_rules(options: Mapping[str, str]) -> TokenRules:
    """The rules of the options of Kafka's OAuthBearerLoginModule. Raises ConfigError."""
    given = {
        name.removeprefix(_OPTION_PREFIX): text.strip()
        for name, text in options.items()
        if name.startswith(_OPTION_PREFIX)
    }
    subject, scope = given.pop("PrincipalClaimName", ""), given.pop("ScopeClaimName", "")
    required, skew_ms = given.pop("RequiredScope", ""), given.pop("AllowableClockSkewMs", "")
    if given:
        raise ConfigError(f"sasl.jaas.config: {_OPTION_PREFIX}{shown_name(min(given))}: unknown option")
    if skew_ms and not (skew_ms.isascii() and skew_ms.isdigit() and len(skew_ms) <= _CLOCK_SKEW_DIGITS_MAX):
        raise ConfigError(f"sasl.jaas.config: {_OPTION_PREFIX}AllowableClockSkewMs: must be a number of milliseconds")
    return TokenRules(
        clock_skew_ms=int(skew_ms or "0"),
        scope_claim=scope or "scope",
        subject_claim=subject or "sub",
        required_scope=tuple(required.split()),
        issue_time_required=False,
    )


def _without_keys() -> Identity:
    raise TokenRefused("the broker has no keys yet")
