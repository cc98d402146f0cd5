"""Delegation tokens: their secrets are HMACs of their ids, and only authenticated clients may manage them."""

from __future__ import annotations

from base64 import b64decode

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.security.delegation_tokens import HMAC_BYTES, TokenKey, check_token_requests
from raylog.security.principal import ANONYMOUS, LOCAL_HOST, Client, Principal
from raylog.security.security_protocol import SecurityProtocol

ALICE = Principal("User", "alice")


def test_a_secret_is_the_hmac_sha_512_of_the_id() -> None:
    """RFC 4231, test case 2."""
    key = TokenKey(Password("Jefe"))
    secret = key.hmac_of("what do ya want for nothing?")
    assert len(secret) == HMAC_BYTES
    assert secret.hex() == (
        "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
        "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
    )
    password = key.password_of("what do ya want for nothing?")
    assert b64decode(password.reveal()) == secret


def test_neither_the_key_nor_a_secret_is_printed() -> None:
    key = TokenKey(Password("hunter2"))
    assert "hunter2" not in f"{key!r} {vars(key)}"
    assert str(key.password_of("id")) == "[hidden]"


@pytest.mark.parametrize(
    ("security", "principal", "by_token", "allowed"),
    [
        (SecurityProtocol.SASL_PLAINTEXT, ALICE, False, True),
        (SecurityProtocol.SASL_SSL, ALICE, False, True),
        (SecurityProtocol.SSL, ALICE, False, True),
        (SecurityProtocol.SSL, ANONYMOUS, False, False),
        (SecurityProtocol.SASL_SSL, ANONYMOUS, False, False),
        (SecurityProtocol.PLAINTEXT, ANONYMOUS, False, False),
        (SecurityProtocol.PLAINTEXT, ALICE, False, False),
        (SecurityProtocol.SASL_PLAINTEXT, ALICE, True, False),
        (SecurityProtocol.SASL_SSL, ALICE, True, False),
    ],
)
def test_who_may_manage_tokens(security: SecurityProtocol, principal: Principal, by_token: bool, allowed: bool) -> None:
    client = Client(principal, LOCAL_HOST, by_token)
    if allowed:
        check_token_requests(client, security)
        return
    with pytest.raises(KafkaError) as refused:
        check_token_requests(client, security)
    assert refused.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
