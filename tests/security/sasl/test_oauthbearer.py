"""OAUTHBEARER, both ends: whose token is accepted, how errors are exchanged, and that damaged messages are refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress

import pytest

from raylog.core.clock import Now
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.security.principal import Principal
from raylog.security.sasl.json_web_tokens import TokenRules, parse_keys
from raylog.security.sasl.key_cache import KeyCache
from raylog.security.sasl.mechanism import Check, Identity
from raylog.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, TokenRefusal, TokenRefused
from raylog.security.sasl.token_validators import SignedTokens, UnsecuredTokens, unsecured_rules
from tests.security.sasl.exchanges import exchange
from tests.support.forms import by_form
from tests.support.mutations import mutations
from tests.support.token_issuer import claims, jwks, signed, signing_key

ALICE = Identity(Principal("User", "alice"), expires_ms=5)


class Fixed:
    """Accepts one token."""

    def __init__(self, *, refusal: TokenRefused | None = None) -> None:
        self.refusals: list[TokenRefusal] = []
        self.begun: list[str] = []
        self._refusal = refusal or TokenRefused("it is another one")

    def begin(self, token: str) -> Callable[[], Identity]:
        self.begun.append(token)

        def validate() -> Identity:
            if token != "valid.token":
                raise self._refusal
            return ALICE

        return validate

    def refused(self, refusal: TokenRefusal) -> None:
        self.refusals.append(refusal)


def client(token: str = "valid.token") -> OAuthBearerClient:
    return OAuthBearerClient(Password(token))


def respond(server: OAuthBearerServer, message: bytes) -> bytes:
    answer: bytes | Check | None = server.respond(message)
    if isinstance(answer, Check):
        answer = answer.then(answer.run())
    assert isinstance(answer, bytes)
    return answer


def test_a_valid_token() -> None:
    server = OAuthBearerServer(Fixed())
    assert exchange(client(), server) == [b""]
    assert server.identity == ALICE


def test_a_refused_token_is_answered_with_an_error_and_then_ends_the_exchange() -> None:
    validator = Fixed()
    server, ours = OAuthBearerServer(validator), client("another")
    error = respond(server, ours.first_message)
    assert error == b'{"status":"invalid_token"}'
    assert [refusal.reason for refusal in validator.refusals] == ["it is another one"]
    message = ours.respond(error)
    assert message == b"\x01"
    with pytest.raises(KafkaError) as failed:
        server.respond(message)
    assert failed.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.value.message == '{"status":"invalid_token"}'
    assert server.identity is None


def test_a_missing_scope_is_named() -> None:
    server = OAuthBearerServer(Fixed(refusal=TokenRefused("scope", required_scope='a "b')))
    assert respond(server, client("x").first_message) == b'{"status":"insufficient_scope","scope":"a \\"b"}'


def test_no_second_attempt_in_one_exchange() -> None:
    server = OAuthBearerServer(Fixed())
    respond(server, client("another").first_message)
    with pytest.raises(KafkaError):
        server.respond(client().first_message)
    assert server.identity is None


def test_a_server_that_continues_after_its_error_is_refused() -> None:
    ours = client()
    assert ours.respond(b"{}") == b"\x01"
    with pytest.raises(KafkaError):
        ours.respond(b"")


def test_an_oversized_token_is_refused_without_validation() -> None:
    validator = Fixed()
    server = OAuthBearerServer(validator)
    assert respond(server, client("x" * 65_537).first_message) == b'{"status":"invalid_token"}'
    assert validator.begun == []


@pytest.mark.parametrize(("authorization_id", "works"), [("", True), ("a=alice", True), ("a=bob", False)])
def test_the_authorization_id_must_be_that_of_the_token(authorization_id: str, works: bool) -> None:
    server = OAuthBearerServer(Fixed())
    message = f"n,{authorization_id},\x01auth=Bearer valid.token\x01\x01".encode()
    if works:
        respond(server, message)
    else:
        with pytest.raises(KafkaError, match="authorization id"):
            respond(server, message)
    assert server.identity == (ALICE if works else None)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer valid.token\x01\x01",
        b"n,,\x01auth=bearer   valid.token\x01\x01",
        b"n,,\x01host=h\x01port=1\x01auth=Bearer valid.token\x01traceId=a b\t\x01\x01",
    ],
)
def test_forms_of_the_first_message(message: bytes) -> None:
    server = OAuthBearerServer(Fixed())
    assert respond(server, message) == b""
    assert server.identity == ALICE


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer valid.token\x01",
        b"n,,auth=Bearer valid.token\x01\x01",
        b"y,,\x01auth=Bearer valid.token\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer valid.token\x01\x01",
        b"n,,\x01auth=Basic valid.token\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer valid token\x01\x01",
        b"n,,\x01auth=Bearer valid.token\x01auth=Bearer valid.token\x01\x01",
        b"n,,\x01auth=Bearer valid.token\x01x\x01\x01",
        b"n,,\x01auth=Bearer valid.token\x01\x00=y\x01\x01",
        b"n,,\x01a1=b\x01auth=Bearer valid.token\x01\x01",
        b"n,a=,\x01auth=Bearer valid.token\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_malformed_first_messages(message: bytes) -> None:
    server = OAuthBearerServer(Fixed())
    with pytest.raises(KafkaError) as failed:
        respond(server, message)
    assert failed.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "valid.token" not in failed.value.message
    assert server.identity is None


def test_extensions_of_a_client() -> None:
    ours = OAuthBearerClient(Password("valid.token"), extensions={"logicalCluster": "lkc-1"})
    assert ours.first_message == b"n,,\x01auth=Bearer valid.token\x01logicalCluster=lkc-1\x01\x01"
    exchange(ours, OAuthBearerServer(Fixed()))


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"a": ""}, {"a": "x\x01auth=Bearer y"}, {"": "x"}])
def test_extensions_that_cannot_be_expressed(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        OAuthBearerClient(Password("t"), extensions=extensions)


def test_the_token_of_a_client_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="invalid characters") as refused:
        OAuthBearerClient(Password("secret\x01"))
    assert "secret" not in str(refused.value)
    caplog.set_level(logging.DEBUG)
    respond(OAuthBearerServer(Fixed()), client("secret").first_message)
    assert "token refused" in caplog.text
    assert "secret" not in caplog.text + "".join(str(vars(record)) for record in caplog.records)


class TestValidators:
    NOW = Now(monotonic_ms=5, wall_ms=1_700_000_000_000)

    def signed_tokens(self) -> SignedTokens:
        cache = KeyCache(refresh_ms=60_000, backoff_ms=100, backoff_max_ms=1000, now_ms=0)
        return SignedTokens(cache, TokenRules(), lambda: self.NOW)

    def test_without_keys_no_token_is_valid(self) -> None:
        validator = self.signed_tokens()
        server = OAuthBearerServer(validator)
        assert respond(server, client(signed(claims(1_700_000_000))).first_message) == b'{"status":"invalid_token"}'

    def test_signed_tokens(self) -> None:
        validator = self.signed_tokens()
        validator.cache.fetched(parse_keys(jwks(signing_key())), 0)
        server = OAuthBearerServer(validator)
        exchange(client(signed(claims(1_700_000_000))), server)
        assert server.identity is not None
        assert validator.cache.next_fetch_ms == 60_000
        respond(OAuthBearerServer(validator), client(signed(claims(1_700_000_000), kid="new")).first_message)
        assert validator.cache.next_fetch_ms == 100

    def test_options_of_unsecured_tokens(self) -> None:
        rules = unsecured_rules(
            {
                "unsecuredLoginStringClaim_sub": "x",
                "unsecuredValidatorPrincipalClaimName": "user",
                "unsecuredValidatorScopeClaimName": "scp",
                "unsecuredValidatorRequiredScope": "a b",
                "unsecuredValidatorAllowableClockSkewMs": "3000",
            }
        )
        expected = TokenRules(
            clock_skew_ms=3000,
            scope_claim="scp",
            subject_claim="user",
            required_scope=("a", "b"),
            issue_time_required=False,
        )
        assert rules == expected
        validate = UnsecuredTokens(rules, lambda: self.NOW).begin("e30.e30.")
        with pytest.raises(TokenRefused):
            validate()

    @pytest.mark.parametrize(
        "options",
        [{"unsecuredValidatorClockSkew": "1"}, {"unsecuredValidatorAllowableClockSkewMs": "-1"}]
        + [{"unsecuredValidatorAllowableClockSkewMs": text} for text in ("x", "9" * 19, "\u0663")],
    )
    def test_invalid_options(self, options: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match=r"sasl\.jaas\.config"):
            unsecured_rules(options)


def test_mutated_messages_authenticate_nobody_else() -> None:
    for mutation in mutations(client().first_message, by_form(500, quick=200, long=20_000), "oauthbearer"):
        server = OAuthBearerServer(Fixed())
        with suppress(KafkaError):
            respond(server, mutation)
        assert server.identity is None or re.search(rb"bearer +valid\.token\x01", mutation.lower())
    for mutation in mutations(b"\x01", by_form(100, quick=50, long=1000), "acknowledgement"):
        server = OAuthBearerServer(Fixed())
        respond(server, client("another").first_message)
        with pytest.raises(KafkaError):
            respond(server, mutation)
