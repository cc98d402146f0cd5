"""Logins by delegation tokens: as their owner, until they expire, with credentials that are derived once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from raylog.core.errors import KafkaError
from raylog.core.password import Password
from raylog.security.delegation_tokens import DelegationToken, TokenKey
from raylog.security.principal import Principal
from raylog.security.sasl import token_logins
from raylog.security.sasl.mechanism import Check, Identity
from raylog.security.sasl.scram import PendingUser, ScramClient, ScramMechanism, ScramServer, ScramUser
from raylog.security.sasl.token_logins import TokenLogins
from tests.security.sasl.exchanges import exchange, reply

KEY = TokenKey(Password("key"))
OWNER, REQUESTER = Principal("User", "owner"), Principal("User", "requester")
TOKEN = DelegationToken("id", OWNER, REQUESTER, (), 0, 1000, 500)
DECOY_KEY = b"decoy"
mechanisms = pytest.mark.parametrize("mechanism", list(ScramMechanism))


@pytest.fixture
def logins() -> TokenLogins:
    return TokenLogins(KEY, salt_key=DECOY_KEY)


def log_in(
    logins: TokenLogins,
    mechanism: ScramMechanism,
    *,
    password: Password | None = None,
    is_token: bool = True,
    now_ms: int = 0,
) -> Identity | None:
    def find(name: str, by_token: bool) -> ScramUser | PendingUser | None:
        return logins.user(mechanism, TOKEN if by_token and name == "id" else None, now_ms=now_ms)

    server = ScramServer(mechanism, find, nonce=b"server", decoy_key=DECOY_KEY)
    given = KEY.password_of("id") if password is None else password
    exchange(ScramClient(mechanism, "id", given, nonce=b"client", is_token=is_token), server)
    return server.identity


@mechanisms
def test_the_secret_of_a_token_authenticates_its_owner_until_it_expires(
    logins: TokenLogins, mechanism: ScramMechanism
) -> None:
    for _ in range(2):
        assert log_in(logins, mechanism) == Identity(OWNER, expires_ms=500, by_token=True)
    assert log_in(logins, mechanism, now_ms=499)
    with pytest.raises(KafkaError):
        log_in(logins, mechanism, now_ms=500)


@mechanisms
def test_other_secrets_are_refused(logins: TokenLogins, mechanism: ScramMechanism) -> None:
    for wrong in (Password("key"), Password("id"), KEY.password_of("other"), TokenKey(Password("")).password_of("id")):
        with pytest.raises(KafkaError):
            log_in(logins, mechanism, password=wrong)
    with pytest.raises(KafkaError):
        log_in(logins, mechanism, is_token=False)


def test_a_credential_is_derived_off_the_loop_and_once(logins: TokenLogins) -> None:
    def server() -> ScramServer:
        find = partial(logins.user, ScramMechanism.SHA_256, TOKEN, now_ms=0)
        return ScramServer(ScramMechanism.SHA_256, lambda *_: find(), nonce=b"server", decoy_key=DECOY_KEY)

    first_message = ScramClient(ScramMechanism.SHA_256, "id", Password(""), nonce=b"c", is_token=True).first_message
    check = server().respond(first_message)
    assert isinstance(check, Check)
    credential = check.run()
    assert len(logins) == 0
    challenge = check.then(credential)
    assert len(logins) == 1
    assert server().respond(first_message) == challenge


@mechanisms
def test_a_challenge_does_not_tell_whether_the_token_exists(logins: TokenLogins, mechanism: ScramMechanism) -> None:
    found = {
        reply(
            ScramServer(
                mechanism,
                lambda *_, now_ms=now_ms: logins.user(mechanism, TOKEN, now_ms=now_ms),
                nonce=b"server",
                decoy_key=DECOY_KEY,
            ),
            b"n,,n=id,r=client,tokenauth=true",
        )
        for now_ms in (0, 1, 2000)
    }
    assert len(found) == 1


def test_as_many_credentials_are_kept_as_were_used_last(logins: TokenLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_logins, "CREDENTIALS_MAX", 2)

    def is_kept(token_id: str) -> bool:
        user = logins.user(ScramMechanism.SHA_256, replace(TOKEN, token_id=token_id), now_ms=0)
        if isinstance(user, PendingUser):
            user.then(user.run())
            return False
        return True

    assert [is_kept(token_id) for token_id in ("a", "b", "a", "c", "a", "b")] == [
        False,
        False,
        True,
        False,
        True,
        False,
    ]
    assert len(logins) == 2
