"""GSSAPI: the client proves its identity by a Kerberos ticket for the server's principal.

    client <-> server   tokens of the GSS mechanism, until both have a context; the last one may be empty
    server -> client    wrapped: 1, 0, 0, 0      the security layers that the server offers: none, as in Kafka
    client -> server    wrapped: 1, 0, 0, 0 and an authorization id, which is ignored, as in Kafka

A step may read files or wait for a KDC, so that each step of the server is a `Check`. Source: RFC 4752.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from raylog.core.errors import KafkaError
from raylog.security.principal import Principal
from raylog.security.sasl.kerberos_names import NoShortName, ShortNames
from raylog.security.sasl.mechanism import Check, Identity, authentication_failed

log = logging.getLogger("raylog.security.sasl")
GSSAPI: Final = "GSSAPI"
ROUNDS_MAX: Final = 10
"""Kerberos needs one or two."""
_NO_LAYER: Final = 1
_OFFER: Final = bytes((_NO_LAYER, 0, 0, 0))


class GssRefused(Exception):
    """A step failed. The reason is logged, and not sent to the peer."""


class GssContext(Protocol):
    """A security context of the `gssapi` package. Its methods may block, and raise GssRefused."""

    @property
    def complete(self) -> bool:
        """Whether both ends have proved who they are, as far as was asked for."""

    @property
    def initiator(self) -> str:
        """The client's principal, once `complete`."""

    def step(self, token: bytes | None) -> bytes:
        """The next token for the peer; empty if there is none."""

    def wrap(self, message: bytes) -> bytes:
        """The message with a proof of its origin."""

    def unwrap(self, message: bytes) -> bytes: ...


class _State(Enum):
    NEGOTIATING = "tokens are exchanged"
    ACKNOWLEDGING = "the client has yet to acknowledge the last token"
    CHOOSING = "the client has yet to choose the security layer"
    COMPLETE = "the client is authenticated"


class _Step(NamedTuple):
    """The result of a step."""

    message: bytes | None
    state: _State
    user: str = ""


class GssapiServer:
    """One exchange."""

    def __init__(self, new_context: Callable[[], GssContext], names: ShortNames) -> None:
        """`new_context` is called off the loop."""
        self._accept = _Accept(new_context, names)
        self._state = _State.NEGOTIATING
        self._rounds = 0
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> Check:
        self._rounds += 1
        if self._rounds > ROUNDS_MAX:
            raise _failed("too many messages")
        return Check(partial(_outcome, self._accept, self._state, message), self._continue)

    def _continue(self, outcome: _Step | str) -> bytes | None:
        if isinstance(outcome, str):
            raise _failed(outcome)
        self._state = outcome.state
        if outcome.state is _State.COMPLETE:
            self.identity = Identity(Principal("User", outcome.user))
        return outcome.message


class _Accept:
    """The steps of one exchange, one after another, off the loop."""

    def __init__(self, new_context: Callable[[], GssContext], names: ShortNames) -> None:
        self._new_context = new_context
        self._names = names
        self._context: GssContext | None = None

    def __call__(self, state: _State, message: bytes) -> _Step:
        """Raises GssRefused, NoShortName."""
        if self._context is None:
            self._context = self._new_context()
        match state:
            case _State.NEGOTIATING:
                token = self._context.step(message)
                if not self._context.complete:
                    return _Step(token, _State.NEGOTIATING)
                return _Step(token, _State.ACKNOWLEDGING) if token else self._offer(self._context)
            case _State.ACKNOWLEDGING:
                if message:
                    raise GssRefused("a token after the context is complete")
                return self._offer(self._context)
            case _State.CHOOSING:
                choice = self._context.unwrap(message)
                if len(choice) < len(_OFFER) or choice[0] != _NO_LAYER:
                    raise GssRefused("the client asks for a security layer")
                return _Step(None, _State.COMPLETE, self._names.of(self._context.initiator))
            case _State.COMPLETE:
                raise GssRefused("a message after the end of the exchange")

    def _offer(self, context: GssContext) -> _Step:
        return _Step(context.wrap(_OFFER), _State.CHOOSING)


class GssapiClient:
    """One exchange. Construction and `respond` may wait for a KDC, so that it belongs in a thread that may block."""

    mechanism = GSSAPI

    def __init__(self, context: GssContext) -> None:
        """Raises KafkaError."""
        self._context = context
        self._chosen = False
        self.first_message = _stepped(context, None)

    def respond(self, message: bytes) -> bytes | None:
        if self._chosen:
            return None
        if not self._context.complete:
            return _stepped(self._context, message)
        try:
            offer = self._context.unwrap(message)
            if len(offer) != len(_OFFER) or not offer[0] & _NO_LAYER:
                raise authentication_failed("the server requires a security layer")
            self._chosen = True
            return self._context.wrap(_OFFER)
        except GssRefused as error:
            raise authentication_failed(f"the server is not authenticated: {error}") from None


def _outcome(accept: _Accept, state: _State, message: bytes) -> _Step | str:
    """What the step leads to, or why the client is refused."""
    try:
        return accept(state, message)
    except (GssRefused, NoShortName) as error:
        return str(error)


def _stepped(context: GssContext, message: bytes | None) -> bytes:
    try:
        return context.step(message)
    except GssRefused as error:
        raise authentication_failed(f"no Kerberos authentication: {error}") from None


def _failed(reason: str) -> KafkaError:
    """As in Kafka, the client does not see the reason."""
    log.info("Kerberos authentication failed", extra={"reason": reason})
    return authentication_failed(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {GSSAPI}"
    )
