"""JSON web tokens as credentials: signed ones, whose keys are known, and unsecured ones. Without a clock or a network.

A signed token is accepted only with an asymmetric algorithm that fits the type of its key: neither `none` nor HMAC with
a public key as secret. Keys in the token itself, or at addresses that it names, are never used.

Source: RFC 7515, RFC 7517, RFC 7519, RFC 8725; KIP-768 and KIP-255 for which claims Kafka requires.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.algorithms import Algorithm, get_default_algorithms

from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import Identity
from raylog.security.sasl.oauthbearer import TokenRefused

KEYS_MAX: Final = 200
RSA_BITS_MIN: Final = 2048
KEY_ID_CHARACTERS_MAX: Final = 1000
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_FITTING: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""Algorithms by the type and the curve of a key."""
_ALGORITHMS: Final[Mapping[str, Algorithm]] = get_default_algorithms()
_INVALID: Final = (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError)
"""What PyJWT raises for input of any kind."""
_EXPIRES_MS_MAX: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What the claims of a token must be."""

    audiences: tuple[str, ...] = ()
    """One of them must be in the token; empty: any, or none."""
    issuer: str = ""
    """Empty: any, or none."""
    clock_skew_ms: int = 0
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    required_scope: tuple[str, ...] = ()
    issue_time_required: bool = True


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One public key, and the algorithms that it may be used with."""

    key_id: str | None
    algorithms: tuple[str, ...]
    public: Any
    """An object of `cryptography`."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of a JWKS document."""

    keys: tuple[VerificationKey, ...]

    @property
    def key_ids(self) -> frozenset[str | None]:
        return frozenset(key.key_id for key in self.keys)

    def select(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """The key with this id; without an id, the only one that fits the algorithm."""
        fitting = [key for key in self.keys if algorithm in key.algorithms and key_id in (None, key.key_id)]
        return fitting[0] if len(fitting) == 1 else None


def parse_keys(document: bytes) -> KeySet:
    """The keys of a JWKS document; keys of unknown type, or for another use, are left out.

    Raises ValueError if it is no such document, or has no usable key.
    """
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError("the document is not JSON") from None
    listed = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise ValueError(f"the document is no JWKS with at most {KEYS_MAX} keys")
    found = tuple(key for each in listed if isinstance(each, dict) and (key := _usable(each)) is not None)
    if not found:
        raise ValueError("the document has no key for signatures by RSA, EC or Ed25519")
    return KeySet(found)


def _usable(described: Mapping[str, Any]) -> VerificationKey | None:
    kind, curve, key_id = described.get("kty"), described.get("crv"), described.get("kid")
    if not all(value is None or isinstance(value, str) for value in (kind, curve, key_id)):
        return None
    fitting = _FITTING.get((kind or "", None if kind == "RSA" else curve), ())
    if (named := described.get("alg")) is not None:
        fitting = tuple(algorithm for algorithm in fitting if algorithm == named)
    operations = described.get("key_ops", ["verify"])
    if described.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    if not fitting or "d" in described:
        return None
    try:
        public = _ALGORITHMS[fitting[0]].from_jwk(dict(described))
    except _INVALID:
        return None
    if kind == "RSA" and public.key_size < RSA_BITS_MIN:
        return None
    return VerificationKey(key_id, fitting, public)


def validate_signed(token: str, keys: KeySet, rules: TokenRules, *, now_ms: int) -> Identity:
    """The identity that the token names. Raises TokenRefused."""
    try:
        header = jwt.get_unverified_header(token)
    except _INVALID:
        raise TokenRefused("it is no JSON web token") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not any(algorithm in fitting for fitting in _FITTING.values()):
        raise TokenRefused("its algorithm is none of RS, PS, ES and EdDSA")
    if key_id is not None and len(key_id) > KEY_ID_CHARACTERS_MAX:
        raise TokenRefused("its key id is too long")
    key = keys.select(key_id, algorithm)
    if key is None:
        raise TokenRefused("its key is unknown", unknown_key=key_id is not None and key_id not in keys.key_ids)
    try:
        verified = jwt.PyJWS(algorithms=[algorithm]).decode_complete(token, key.public, algorithms=[algorithm])
    except _INVALID as error:
        raise TokenRefused(f"its signature is invalid ({type(error).__name__})") from None
    return _identity(_object(verified["payload"]), rules, now_ms)


def validate_unsecured(token: str, rules: TokenRules, *, now_ms: int) -> Identity:
    """The identity that a token without a signature names: whatever the client chose. Raises TokenRefused."""
    header, *rest = token.split(".")
    if len(rest) != 2 or rest[1]:
        raise TokenRefused("it is no unsecured JSON web token")
    if _object(_decoded(header)).get("alg") != "none":
        raise TokenRefused("its algorithm is not none")
    return _identity(_object(_decoded(rest[0])), rules, now_ms)


def _identity(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> Identity:
    skew_ms = rules.clock_skew_ms
    expires_ms, issued_ms, begins_ms = (_time_ms(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_ms is None or (issued_ms is None and rules.issue_time_required):
        raise TokenRefused("it has no exp, or no iat")
    if now_ms >= expires_ms + skew_ms:
        raise TokenRefused("it has expired")
    if any(given_ms is not None and now_ms + skew_ms < given_ms for given_ms in (issued_ms, begins_ms)):
        raise TokenRefused("it is not valid yet")
    if any(given_ms is not None and given_ms >= expires_ms for given_ms in (issued_ms, begins_ms)):
        raise TokenRefused("it expires before it is valid")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused("its issuer is not the expected one")
    if rules.audiences and not set(rules.audiences) & set(_texts(claims, "aud")):
        raise TokenRefused("its audience is not the expected one")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused(f"it has no {rules.subject_claim}")
    scope = {word for text in _texts(claims, rules.scope_claim) for word in text.split()}
    if not scope.issuperset(rules.required_scope):
        raise TokenRefused("it lacks a scope", required_scope=" ".join(rules.required_scope))
    # A token that has expired by less than the clock skew is valid until the end of the skew, and so is its session.
    ends_ms = expires_ms if expires_ms > now_ms else expires_ms + skew_ms
    return Identity(Principal("User", subject), expires_ms=ends_ms)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or (isinstance(seconds, float) and not math.isfinite(seconds)):
        raise TokenRefused(f"its {name} is not a time")
    return int(max(-_EXPIRES_MS_MAX, min(seconds * 1000, _EXPIRES_MS_MAX)))


def _texts(claims: Mapping[str, Any], name: str) -> list[str]:
    """The values of a claim that is a text, or a list of them."""
    given = claims.get(name, [])
    values = given if isinstance(given, list) else [given]
    if not all(isinstance(value, str) for value in values):
        raise TokenRefused(f"its {name} is neither a text nor a list of texts")
    return values


def _object(document: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise TokenRefused("it does not contain JSON") from None
    if not isinstance(parsed, dict):
        raise TokenRefused("it does not contain a JSON object")
    return parsed


def _decoded(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Base64Error, ValueError):
        raise TokenRefused("it is not base64") from None
