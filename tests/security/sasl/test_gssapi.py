"""GSSAPI without Kerberos: the order of the messages, who is refused, and that no step runs on the loop."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.principal import Principal
from raylog.security.sasl.gssapi import ROUNDS_MAX, GssapiClient, GssapiServer, GssRefused
from raylog.security.sasl.kerberos_names import ShortNames
from raylog.security.sasl.mechanism import Check, Identity
from tests.security.sasl.exchanges import exchange
from tests.support.forms import by_form
from tests.support.mutations import mutations

NAMES = ShortNames((), default_realm="R")


@dataclass
class FakeContext:
    """One end. Its tokens are `token <n>`, and a wrapped message begins with `wrapped `."""

    steps: int = 1
    """How many tokens it takes."""
    answers: bool = True
    """Whether the last token is answered, as for mutual authentication."""
    initiator: str = "alice@R"
    initiates: bool = False
    complete: bool = False
    taken: int = field(default=0)

    def step(self, token: bytes | None) -> bytes:
        if token is None:
            return b"token 1"
        self.taken += 1
        if token != b"token %d" % self.taken:
            raise GssRefused(f"{token!r} in place of token {self.taken}")
        self.complete = self.taken == self.steps
        if self.initiates:
            return b"" if self.complete else b"token %d" % (self.taken + 1)
        return b"token %d" % self.taken if self.answers or not self.complete else b""

    def wrap(self, message: bytes) -> bytes:
        assert self.complete
        return b"wrapped " + message

    def unwrap(self, message: bytes) -> bytes:
        if not self.complete or not message.startswith(b"wrapped "):
            raise GssRefused("it is not wrapped")
        return message.removeprefix(b"wrapped ")


def server(context: FakeContext | None = None) -> GssapiServer:
    made = context or FakeContext()
    return GssapiServer(lambda: made, NAMES)


def respond(ours: GssapiServer, *messages: bytes) -> bytes | None:
    """The answer to the last of the messages."""
    answer: bytes | None = None
    for message in messages:
        check = ours.respond(message)
        assert isinstance(check, Check)
        next_answer = check.then(check.run())
        assert not isinstance(next_answer, Check)
        answer = next_answer
    return answer


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_both_ends(steps: int) -> None:
    ours = server(FakeContext(steps=steps))
    sent = exchange(GssapiClient(FakeContext(steps=steps, initiates=True)), ours)
    assert sent[-2:] == [b"wrapped \x01\0\0\0", b""]
    assert ours.identity == Identity(Principal("User", "alice"))


def test_the_messages_of_the_server() -> None:
    ours = server()
    assert respond(ours, b"token 1") == b"token 1"
    assert respond(ours, b"") == b"wrapped \x01\0\0\0"
    assert ours.identity is None
    assert respond(ours, b"wrapped \x01\0\0\0kafka@host") is None, "the authorization id is ignored"
    assert ours.identity == Identity(Principal("User", "alice"))


def test_without_mutual_authentication_the_offer_follows_at_once() -> None:
    ours = server(FakeContext(answers=False))
    assert respond(ours, b"token 1") == b"wrapped \x01\0\0\0"
    respond(ours, b"wrapped \x01\0\0\0")
    assert ours.identity is not None


def test_a_context_is_made_off_the_loop() -> None:
    made: list[FakeContext] = []

    def new_context() -> FakeContext:
        made.append(FakeContext())
        return made[-1]

    check = GssapiServer(new_context, NAMES).respond(b"token 1")
    assert not made
    check.run()
    assert made


@pytest.mark.parametrize(
    "messages",
    [
        [b""],
        [b"token 2"],
        [b"token 1", b"token 2"],
        [b"token 1", b"wrapped \x01\0\0\0"],
        [b"token 1", b"", b""],
        [b"token 1", b"", b"\x01\0\0\0"],
        [b"token 1", b"", b"wrapped "],
        [b"token 1", b"", b"wrapped \x01\0\0"],
        [b"token 1", b"", b"wrapped \0\0\0\0"],
        [b"token 1", b"", b"wrapped \x02\0\xff\xff"],
        [b"token 1", b"", b"wrapped \x04\0\xff\xff"],
        [b"token 1", b"", b"wrapped \x07\0\xff\xff"],
    ],
)
def test_wrong_messages(messages: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ours = server()
    respond(ours, *messages[:-1])
    with pytest.raises(KafkaError) as failed:
        respond(ours, messages[-1])
    assert failed.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.value.message.endswith("due to invalid credentials with SASL mechanism GSSAPI")
    assert "Kerberos authentication failed" in caplog.text
    assert ours.identity is None


@pytest.mark.parametrize("initiator", ["alice@OTHER", "alice", "a/b/c@R", "WELLKNOWN/ANONYMOUS@WELLKNOWN:ANONYMOUS"])
def test_a_principal_without_short_name_is_refused(initiator: str) -> None:
    ours = server(FakeContext(initiator=initiator))
    with pytest.raises(KafkaError):
        respond(ours, b"token 1", b"", b"wrapped \x01\0\0\0")
    assert ours.identity is None


def test_an_exchange_ends() -> None:
    ours = server(FakeContext(steps=1000))
    with pytest.raises(KafkaError):
        respond(ours, *(b"token %d" % number for number in range(1, ROUNDS_MAX + 2)))


class TestClient:
    def client(self) -> GssapiClient:
        ours = GssapiClient(FakeContext(initiates=True))
        assert ours.first_message == b"token 1"
        return ours

    def test_a_server_without_the_key_is_refused(self) -> None:
        with pytest.raises(KafkaError, match="no Kerberos authentication"):
            self.client().respond(b"token 7")

    @pytest.mark.parametrize(
        "offer", [b"", b"\x01\0\0\0", b"wrapped \x02\0\0\0", b"wrapped \x01", b"wrapped \x06\0\0\0"]
    )
    def test_a_server_that_requires_a_layer_is_refused(self, offer: bytes) -> None:
        ours = self.client()
        assert ours.respond(b"token 1") == b""
        with pytest.raises(KafkaError):
            ours.respond(offer)

    def test_a_layer_is_chosen_among_several(self) -> None:
        ours = self.client()
        ours.respond(b"token 1")
        assert ours.respond(b"wrapped \x07\0\x10\0") == b"wrapped \x01\0\0\0"
        assert ours.respond(b"") is None


def test_mutated_messages_authenticate_nobody() -> None:
    for mutation in mutations(b"wrapped \x01\0\0\0", by_form(500, quick=200, long=20_000), "choice"):
        ours = server()
        respond(ours, b"token 1", b"")
        with suppress(KafkaError):
            respond(ours, mutation)
        assert ours.identity is None or mutation.startswith(b"wrapped \x01")
    for mutation in mutations(b"token 1", by_form(500, quick=200, long=20_000), "token"):
        ours = server()
        with suppress(KafkaError):
            respond(ours, mutation)
        assert ours.identity is None
