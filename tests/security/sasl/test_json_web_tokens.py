"""A token is valid only with a known key, an asymmetric algorithm that fits it, and the claims that are expected."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from raylog.security.principal import Principal
from raylog.security.sasl.json_web_tokens import (
    KeySet,
    TokenRules,
    parse_keys,
    validate_signed,
    validate_unsecured,
)
from raylog.security.sasl.mechanism import Identity
from raylog.security.sasl.oauthbearer import TokenRefused
from tests.support.forms import by_form
from tests.support.mutations import mutations
from tests.support.token_issuer import AUDIENCE, ISSUER, SigningKey, claims, jwks, signed, signing_key

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
RULES = TokenRules(audiences=(AUDIENCE, "other"), issuer=ISSUER, clock_skew_ms=30_000)
ALGORITHMS = ("RS256", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA")


def keys() -> KeySet:
    return parse_keys(jwks(signing_key(), signing_key("ES256", "two")))


def validate(token: str, rules: TokenRules = RULES) -> Identity:
    return validate_signed(token, keys(), rules, now_ms=NOW_MS)


def encoded(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsecured(payload: dict[str, Any], **header: Any) -> str:
    return f"{encoded({'alg': 'none', **header})}.{encoded(payload)}."


class TestSigned:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_every_asymmetric_algorithm(self, algorithm: str) -> None:
        key = signing_key(algorithm)
        token = signed(claims(NOW_S), key)
        identity = validate_signed(token, parse_keys(jwks(key)), RULES, now_ms=NOW_MS)
        assert identity == Identity(Principal("User", "alice"), expires_ms=NOW_MS + 60_000)

    def test_a_token_without_key_id_is_valid_if_one_key_fits(self) -> None:
        assert validate(signed(claims(NOW_S), kid=None)).principal.name == "alice"
        both = parse_keys(jwks(signing_key(), signing_key("RS256", "other")))
        with pytest.raises(TokenRefused, match="unknown") as refused:
            validate_signed(signed(claims(NOW_S), kid=None), both, RULES, now_ms=NOW_MS)
        assert not refused.value.refusal.unknown_key, "no key to look for"

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"iss": "https://other.example"}, "issuer"),
            ({"iss": None}, "issuer"),
            ({"iss": [ISSUER]}, "issuer"),
            ({"aud": "elsewhere"}, "audience"),
            ({"aud": None}, "audience"),
            ({"aud": ["elsewhere", "nowhere"]}, "audience"),
            ({"aud": [AUDIENCE, 1]}, "aud is neither"),
            ({"exp": NOW_S - 30}, "expired"),
            ({"exp": None}, "no exp"),
            ({"exp": "tomorrow"}, "exp is not a time"),
            ({"exp": True}, "exp is not a time"),
            ({"exp": float("inf")}, "exp is not a time"),
            ({"iat": None}, "no iat"),
            ({"iat": NOW_S + 31}, "not valid yet"),
            ({"nbf": NOW_S + 31}, "not valid yet"),
            ({"nbf": NOW_S + 61, "exp": NOW_S + 60, "iat": NOW_S}, "not valid yet"),
            ({"iat": NOW_S - 10, "exp": NOW_S - 10}, "expires before"),
            ({"sub": None}, "no sub"),
            ({"sub": ""}, "no sub"),
            ({"sub": " "}, "no sub"),
            ({"scope": 7}, "scope is neither"),
            ({"scope": {"a": "b"}}, "scope is neither"),
        ],
    )
    def test_wrong_claims(self, changed: dict[str, Any], reason: str) -> None:
        with pytest.raises(TokenRefused, match=reason):
            validate(signed(claims(NOW_S, **changed)))

    @pytest.mark.parametrize(
        "changed",
        [
            {"aud": ["elsewhere", "other"]},
            {"exp": NOW_S + 0.5},
            {"iat": NOW_S + 30},
            {"nbf": NOW_S - 1},
            {"scope": "read write"},
            {"scope": ["read", "write"]},
        ],
    )
    def test_valid_claims(self, changed: dict[str, Any]) -> None:
        assert validate(signed(claims(NOW_S, **changed))).principal.name == "alice"

    def test_a_subject_that_is_not_a_text(self) -> None:
        with pytest.raises(TokenRefused, match="no azp"):
            validate(signed(claims(NOW_S, azp=5)), TokenRules(subject_claim="azp"))

    def test_issuer_and_audience_are_checked_only_if_expected(self) -> None:
        token = signed(claims(NOW_S, iss="anywhere", aud="anything", client="bob"))
        assert validate(token, TokenRules(subject_claim="client")).principal == Principal("User", "bob")

    def test_the_identity_ends_with_the_token(self) -> None:
        assert validate(signed(claims(NOW_S, exp=NOW_S + 5))).expires_ms == NOW_MS + 5000
        within_skew = validate(signed(claims(NOW_S, iat=NOW_S - 60, exp=NOW_S - 5)))
        assert within_skew.expires_ms == NOW_MS + 25_000

    @pytest.mark.parametrize("never", [10**300, 10**400, 1e308], ids=["1e300", "beyond a float", "the largest float"])
    def test_a_time_far_away_fits_into_a_response(self, never: float) -> None:
        far = validate(signed(claims(NOW_S, exp=never))).expires_ms
        assert far is not None
        assert far < 1 << 62

    def test_another_key_with_the_same_id(self) -> None:
        other = SigningKey(rsa.generate_private_key(65537, 2048), "RS256", "one")
        with pytest.raises(TokenRefused, match="signature is invalid"):
            validate(signed(claims(NOW_S), other))

    def test_an_unknown_key_is_reported(self) -> None:
        other = signing_key("RS256", "three")
        with pytest.raises(TokenRefused) as refused:
            validate(signed(claims(NOW_S), other))
        assert refused.value.refusal.unknown_key

    @pytest.mark.parametrize("kid", [5, ["one"], "k" * 2000])
    def test_strange_key_ids(self, kid: Any) -> None:
        token = f"{encoded({'alg': 'RS256', 'kid': kid})}.{encoded(claims(NOW_S))}.{encoded(b'x')}"
        with pytest.raises(TokenRefused) as refused:
            validate(token)
        assert not refused.value.refusal.unknown_key

    @pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "HS512", "ES256K", "", None, ["RS256"]])
    def test_other_algorithms(self, algorithm: Any) -> None:
        """The public key as secret of an HMAC, no signature, and one that no key fits."""
        secret = signing_key().private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        text = f"{encoded({'alg': algorithm, 'kid': 'one'})}.{encoded(claims(NOW_S))}"
        for signature in (
            b"",
            hmac.digest(secret, text.encode(), "sha256"),
            hmac.digest(secret, text.encode(), "sha512"),
        ):
            with pytest.raises(TokenRefused, match=r"its algorithm|no JSON web token"):
                validate(f"{text}.{encoded(signature)}")

    def test_the_algorithm_must_fit_the_key(self) -> None:
        """RS256 with the id of the elliptic key, and an algorithm that the document does not permit for its key."""
        with pytest.raises(TokenRefused, match="key is unknown"):
            validate(signed(claims(NOW_S), kid="two"))
        only_512 = {"keys": [{**signing_key().public_jwk(), "alg": "RS512"}]}
        with pytest.raises(TokenRefused, match="key is unknown"):
            validate_signed(signed(claims(NOW_S)), parse_keys(json.dumps(only_512).encode()), RULES, now_ms=NOW_MS)

    def test_keys_in_the_token_are_not_used(self) -> None:
        other = SigningKey(rsa.generate_private_key(65537, 2048), "RS256", "one")
        with pytest.raises(TokenRefused, match="signature"):
            validate(signed(claims(NOW_S), other, jwk=other.public_jwk(), jku="http://127.0.0.1:1/"))

    @pytest.mark.parametrize(
        "token",
        [
            "",
            ".",
            "..",
            "a.b.c",
            "." * 5000,
            f"{'A' * 60_000}.e30.x",
            f"{encoded(b'[' * 45_000)}.e30.x",
            f"{encoded(b'1' * 45_000)}.e30.x",
            f"{encoded([])}.e30.x",
            f"{encoded({'alg': 'RS256', 'crit': ['x'], 'kid': 'one'})}.e30.x",
            f"{encoded({'alg': 'RS256', 'b64': False, 'kid': 'one'})}.e30.x",
        ],
        ids=lambda token: token[:20],
    )
    def test_what_is_no_token(self, token: str) -> None:
        with pytest.raises(TokenRefused):
            validate(token)

    @pytest.mark.parametrize("payload", [b"[]", b"7", b"{", b"\xff", b"[" * 30_000, b'{"exp":' + b"1" * 9000 + b"}"])
    def test_a_signed_payload_that_is_no_object(self, payload: bytes) -> None:
        key = signing_key()
        token = jwt.PyJWS().encode(payload, key.private, "RS256", headers={"kid": "one"})
        with pytest.raises(TokenRefused):
            validate(token)

    def test_mutated_tokens_are_refused(self) -> None:
        token = signed(claims(NOW_S), signing_key("ES256", "two"))
        for mutation in mutations(token.encode(), by_form(500, quick=200, long=20_000), "token"):
            text = mutation.decode("latin-1")
            try:
                identity = validate(text)
            except TokenRefused:
                continue
            # base64 has several writings of the same bytes
            assert [_bytes(part) for part in text.split(".")] == [_bytes(part) for part in token.split(".")]
            assert identity.principal.name == "alice"


def _bytes(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


class TestKeys:
    def test_other_keys_are_left_out(self) -> None:
        usable = signing_key().public_jwk()
        small = SigningKey(rsa.generate_private_key(65537, 1024), "RS256", "small").public_jwk()
        listed = [
            usable,
            small,
            {**usable, "kid": "encrypts", "use": "enc"},
            {**usable, "kid": "signs", "key_ops": ["sign"]},
            {**usable, "kid": "other", "alg": "HS256"},
            {**usable, "kid": "broken", "n": "%"},
            {**usable, "kid": 5},
            {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
            {"kty": "EC", "kid": "curve", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "OKP", "kid": "x", "crv": "X25519", "x": "A" * 43},
            {"kty": ["RSA"]},
            "text",
        ]
        assert parse_keys(json.dumps({"keys": listed}).encode()).key_ids == {"one"}

    @pytest.mark.parametrize(
        "document",
        [
            b"",
            b"<html>",
            b"[]",
            b"{}",
            b'{"keys": {}}',
            b'{"keys": []}',
            b"[" * 100_000,
            json.dumps({"keys": [{}] * 201}).encode(),
            b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        ],
        ids=lambda document: document[:20].decode(),
    )
    def test_what_is_no_jwks(self, document: bytes) -> None:
        with pytest.raises(ValueError, match="the document"):
            parse_keys(document)

    def test_mutated_documents_give_keys_or_a_value_error(self) -> None:
        document = jwks(signing_key("ES256", "two"), signing_key("EdDSA"))
        for mutation in mutations(document, by_form(500, quick=200, long=20_000), "jwks"):
            try:
                assert parse_keys(mutation).keys
            except ValueError:
                pass


class TestUnsecured:
    RULES = TokenRules(issue_time_required=False, required_scope=("produce",))

    def test_valid(self) -> None:
        token = unsecured({"sub": "alice", "exp": NOW_S + 60, "scope": "produce consume"})
        assert validate_unsecured(token, self.RULES, now_ms=NOW_MS).principal == Principal("User", "alice")

    @pytest.mark.parametrize(
        "payload",
        [{"exp": NOW_S + 60}, {"sub": "alice"}, {"sub": "alice", "exp": NOW_S}, {"sub": 5, "exp": NOW_S + 60}],
    )
    def test_wrong_claims(self, payload: dict[str, Any]) -> None:
        with pytest.raises(TokenRefused):
            validate_unsecured(unsecured({"scope": "produce", **payload}), self.RULES, now_ms=NOW_MS)

    def test_a_missing_scope(self) -> None:
        with pytest.raises(TokenRefused) as refused:
            validate_unsecured(unsecured({"sub": "a", "exp": NOW_S + 60}), self.RULES, now_ms=NOW_MS)
        assert refused.value.refusal.required_scope == "produce"

    def test_signed_tokens_and_others_are_refused(self) -> None:
        payload = {"sub": "alice", "exp": NOW_S + 60, "scope": "produce"}
        whole = unsecured(payload)
        for token in (signed(claims(NOW_S)), unsecured(payload, alg="HS256"), whole[:-1], f"{whole}x", "", "a.b."):
            with pytest.raises(TokenRefused):
                validate_unsecured(token, self.RULES, now_ms=NOW_MS)
