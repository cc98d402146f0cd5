"""SCRAM (RFC 5802, RFC 7677): the vector of the RFC, another implementation at the other end, and every bad message."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.scram import SaslMechanismScram

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import Check, Identity
from raylog.security.sasl.scram import (
    ITERATIONS_MIN,
    ScramClient,
    ScramMechanism,
    ScramServer,
    ScramUser,
    credential_of,
    salted_password,
)
from tests.security.sasl.exchanges import exchange, reply
from tests.support.mutations import mutations

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SALT = b"sixteen bytes or"
PASSWORD = Password("pencil")


def user(mechanism: ScramMechanism, name: str, password: str) -> ScramUser:
    salted = salted_password(mechanism, password, SALT, ITERATIONS_MIN)
    credential = credential_of(mechanism, salted, SALT, ITERATIONS_MIN)
    return ScramUser(credential, Identity(Principal("User", name)))


USERS = {
    (name, mechanism): user(mechanism, name, "pencil") for name in ("alice", "a,b=c") for mechanism in ScramMechanism
}
TOKEN = ScramUser(USERS["alice", SHA_256].credential, Identity(Principal("User", "owner"), 99, by_token=True))


def find(mechanism: ScramMechanism, name: str, is_token: bool) -> ScramUser | None:
    if is_token:
        return TOKEN if name == "token-id" else None
    return USERS.get((name, mechanism))


def server(mechanism: ScramMechanism = SHA_256, *, nonce: bytes = b"server") -> ScramServer:
    return ScramServer(mechanism, partial(find, mechanism), nonce=nonce, decoy_key=b"decoy")


def client(mechanism: ScramMechanism = SHA_256, name: str = "alice", password: Password = PASSWORD) -> ScramClient:
    return ScramClient(mechanism, name, password, nonce=b"client")


def test_the_client_says_what_the_rfc_says() -> None:
    ours = ScramClient(SHA_256, "user", PASSWORD, nonce=b64decode("rOprNGfwEbeRWgbNEkqO"))
    assert ours.first_message == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert ours.respond(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert ours.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize("name", ["alice", "a,b=c"])
@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_both_ends_agree(mechanism: ScramMechanism, name: str) -> None:
    ours = server(mechanism)
    exchange(client(mechanism, name), ours)
    assert ours.identity == Identity(Principal("User", name))


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_kafka_python_agrees(mechanism: ScramMechanism) -> None:
    theirs = SaslMechanismScram(
        sasl_plain_username="alice", sasl_plain_password="pencil", sasl_mechanism=mechanism.sasl_name
    )
    ours = server(mechanism)
    while not theirs.receive(ours.respond(theirs.auth_bytes())):
        pass
    assert ours.identity == Identity(Principal("User", "alice"))


def test_a_delegation_token_stands_for_its_owner() -> None:
    ours = server()
    exchange(ScramClient(SHA_256, "token-id", PASSWORD, nonce=b"client", is_token=True), ours)
    assert ours.identity == Identity(Principal("User", "owner"), 99, by_token=True)
    with pytest.raises(KafkaError):
        exchange(client(name="token-id"), server())


def test_a_client_that_repeats_its_nonce_is_accepted() -> None:
    """As librdkafka before 2.6.1 does."""
    ours, theirs = server(), client()
    challenge = reply(ours, theirs.first_message)
    repeated = theirs._nonce.encode() + challenge[2:].split(b",")[0]
    salted = salted_password(SHA_256, "pencil", SALT, ITERATIONS_MIN)
    signed = b"c=biws,r=" + repeated
    covered = theirs.first_message[3:] + b"," + challenge + b"," + signed
    signature = hmac.digest(USERS["alice", SHA_256].credential.stored_key, covered, "sha256")
    proof = bytes(a ^ b for a, b in zip(hmac.digest(salted, b"Client Key", "sha256"), signature, strict=True))
    ours.respond(signed + b",p=" + b64encode(proof))
    assert ours.identity == Identity(Principal("User", "alice"))


@given(st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name), st.text(max_size=20))
def test_any_name_and_password(name: str, password: str) -> None:
    known = user(SHA_256, name, password)
    ours = ScramServer(SHA_256, lambda asked, _: known if asked == name else None, nonce=b"server", decoy_key=b"decoy")
    exchange(ScramClient(SHA_256, name, Password(password), nonce=b"client"), ours)
    assert ours.identity == Identity(Principal("User", name))


class TestRefusals:
    @pytest.mark.parametrize("mechanism", list(ScramMechanism))
    @pytest.mark.parametrize(("name", "password"), [("alice", "pencils"), ("alice", ""), ("mallory", "pencil")])
    def test_a_wrong_password_and_an_unknown_user_look_the_same(
        self, mechanism: ScramMechanism, name: str, password: str
    ) -> None:
        ours = server(mechanism)
        with pytest.raises(KafkaError) as refused:
            exchange(client(mechanism, name, Password(password)), ours)
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.value.message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            f" {mechanism.sasl_name}"
        )
        assert ours.identity is None

    def test_an_unknown_user_has_the_same_salt_each_time(self) -> None:
        def challenge(name: str) -> str:
            return reply(server(), client(name=name).first_message).decode().partition(",")[2]

        assert challenge("mallory") == challenge("mallory")
        assert challenge("mallory") != challenge("trudy")
        shape = re.sub(r"[A-Za-z0-9+/]", "x", challenge("mallory"))
        assert shape == "x=" + "x" * 27 + "=,x=xxxx", "as of a user with a salt of the usual 20 bytes"

    def test_a_recorded_exchange_cannot_be_repeated(self) -> None:
        recorded: list[bytes] = []

        class Recording(ScramServer):
            def respond(self, message: bytes) -> bytes | Check:
                recorded.append(message)
                return super().respond(message)

        exchange(client(), Recording(SHA_256, partial(find, SHA_256), nonce=b"server", decoy_key=b"decoy"))
        later = server(nonce=b"another")
        later.respond(recorded[0])
        with pytest.raises(KafkaError, match="nonce"):
            later.respond(recorded[1])
        assert later.identity is None

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"n",
            b"n,,",
            b"n,,n=alice",
            b"n,,n=,r=abc",
            b"n,,n=alice,r=",
            b"n,,n=al=ice,r=abc",
            b"n,,r=abc,n=alice",
            b"n,a=bob,n=alice,r=abc",
            b"n,b=alice,n=alice,r=abc",
            b"p=tls-unique,,n=alice,r=abc",
            b"n,,n=alice,r=" + b"x" * 513,
            b"n,,n=alice,r=a\x01c",
            b"\xff,,n=alice,r=abc",
        ],
    )
    def test_an_invalid_first_message(self, message: bytes) -> None:
        with pytest.raises(KafkaError) as refused:
            server().respond(message)
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"c=biws",
            b"c=biws,r=<nonces>",
            b"c=biws,r=<nonces>,p=",
            b"c=biws,r=<nonces>,p=!!!!",
            b"c=biws,r=Y2xpZW50,p=" + b64encode(b"x" * 32),
            b"c=eSws,r=<nonces>,p=" + b64encode(b"x" * 32),
            b"c=biws,r=<nonces>,p=" + b64encode(b"x" * 31),
            b"c=biws,r=<nonces>,p=" + b64encode(b"x" * 33),
            b"r=<nonces>,c=biws,p=" + b64encode(b"x" * 32),
        ],
    )
    def test_an_invalid_proof(self, message: bytes) -> None:
        ours = server()
        nonces = reply(ours, client().first_message).split(b",")[0][2:]
        with pytest.raises(KafkaError) as refused:
            ours.respond(message.replace(b"<nonces>", nonces))
        assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert ours.identity is None

    @pytest.mark.parametrize(
        "challenge",
        [
            b"",
            b"e=other-error",
            b"r=another,s=c2FsdA==,i=4096",
            b"r=Y2xpZW50,s=c2FsdA==,i=4096",
            b"r=Y2xpZW50x,s=,i=4096",
            b"r=Y2xpZW50x,s=c2FsdA==,i=1",
            b"r=Y2xpZW50x,s=c2FsdA==,i=4095",
            b"r=Y2xpZW50x,s=c2FsdA==,i=10000000",
            b"r=Y2xpZW50x,s=c2FsdA==,i=-4096",
            b"r=Y2xpZW50x,s=c2FsdA==,i=many",
            b"r=Y2xpZW50x,s=%%%,i=4096",
            b"\xff",
        ],
    )
    def test_a_server_that_asks_for_less_is_refused(self, challenge: bytes) -> None:
        """With few iterations or without a nonce of its own, a false server could try passwords."""
        with pytest.raises(KafkaError):
            client().respond(challenge)

    @pytest.mark.parametrize(
        "signature", [b"", b"e=invalid-proof", b"v=", b"v=AAAA", b"v=%", b"v=" + b64encode(b"x" * 32)]
    )
    def test_a_server_that_does_not_know_the_password_is_refused(self, signature: bytes) -> None:
        ours = client()
        assert ours.respond(reply(server(), ours.first_message))
        with pytest.raises(KafkaError):
            ours.respond(signature)


def test_mutated_messages_authenticate_nobody() -> None:
    def opened() -> ScramServer:
        made = server()
        made.respond(client().first_message)
        return made

    first_message = client().first_message
    for mutation in mutations(first_message, 500, "first message"):
        fresh = server()
        with suppress(KafkaError):
            fresh.respond(mutation)
        assert fresh.identity is None
    proof = client().respond(reply(server(), first_message))
    assert proof is not None
    for mutation in mutations(proof, 500, "proof"):
        fresh = opened()
        with pytest.raises(KafkaError):
            fresh.respond(mutation)
        assert fresh.identity is None
