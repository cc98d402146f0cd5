"""PLAIN (RFC 4616): the right password of a known user, and nothing else."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import Check
from raylog.security.sasl.plain import PlainClient, PlainServer
from tests.security.sasl.exchanges import exchange

USERS = {"alice": Password("wonderland"), "böb": Password("Straße, = und \N{SNOWMAN}")}


@pytest.mark.parametrize("user", USERS)
def test_the_right_password_authenticates(user: str) -> None:
    server = PlainServer(USERS)
    assert exchange(PlainClient(user, USERS[user]), server) == [b""]
    assert server.identity is not None
    assert server.identity == (Principal("User", user), None, False)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0alice\0wonderlan", "Invalid username or password"),
        (b"\0alice\0wonderland ", "Invalid username or password"),
        (b"\0mallory\0wonderland", "Invalid username or password"),
        (b"\0ALICE\0wonderland", "Invalid username or password"),
        (b"\0alice\0", "password not specified"),
        (b"\0\0wonderland", "username not specified"),
        (b"bob\0alice\0wonderland", "authorization id that is different from username"),
        (b"", "1 parts"),
        (b"alice\0wonderland", "2 parts"),
        (b"\0alice\0wonder\0land", "4 parts"),
        (b"\0alice\0\xff", "not UTF-8"),
    ],
)
def test_everything_else_is_refused(message: bytes, reason: str) -> None:
    server = PlainServer(USERS)
    with pytest.raises(KafkaError, match=reason) as refused:
        server.respond(message)
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wonderland" not in refused.value.message
    assert server.identity is None


def test_an_authorization_id_equal_to_the_user_is_accepted() -> None:
    assert PlainServer(USERS).respond(b"alice\0alice\0wonderland") == b""


class TestFunction:
    """A function of the operator decides, off the loop."""

    @pytest.mark.parametrize("answer", [True, False, None, "yes", 1])
    def test_only_true_authenticates(self, answer: object) -> None:
        asked = []

        def check(user: str, password: str) -> bool:
            asked.append((user, password))
            return answer  # type: ignore[return-value]

        server = PlainServer(USERS, check)
        wanted = server.respond(b"\0carol\0secret")
        assert isinstance(wanted, Check)
        assert (asked, server.identity) == ([], None)
        if answer is True:
            assert wanted.then(wanted.run()) == b""
            assert server.identity is not None
            assert server.identity.principal == Principal("User", "carol")
        else:
            with pytest.raises(KafkaError, match="Invalid username or password"):
                wanted.run()
        assert asked == [("carol", "secret")]
