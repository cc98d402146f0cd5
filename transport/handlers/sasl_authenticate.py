"""SaslAuthenticate (key 36), v0-2: one message of the SASL exchange. v1 adds the session lifetime; v2 flexible.

A failed authentication is answered after connection.failed.authentication.delay.ms, and the connection closes. After
SaslHandshake v0 the messages come without this request, each as a frame of its own, and nothing tells the client why
the connection closes. No ACL check.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from raylog.protocol.registry import SASL_AUTHENTICATE, api_for
from raylog.security.sasl.mechanism import Check
from raylog.transport.exchange import NO_ANSWER, EncodedAnswer, Exchange

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.transport.accepted_connection import AcceptedConnection
    from raylog.transport.exchange import Server

log = logging.getLogger("raylog.transport")
_CHECK_FAILED: Final = KafkaError(
    ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: it cannot be checked now"
)


def handle(node: Server, exchange: Exchange, request: SaslAuthenticateRequest) -> None:
    authenticator = exchange.connection.authenticator
    if not authenticator.mechanisms:
        exchange.answer(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
        return
    _continue(node, exchange, partial(authenticator.respond, bytes(request.auth_bytes), exchange.now))


def serve_token(node: Server, connection: AcceptedConnection, token: memoryview, now: Now) -> None:
    """A message of the exchange that SaslHandshake v0 has begun."""
    spec = api_for(SASL_AUTHENTICATE)
    assert spec is not None
    exchange = Exchange(node, connection, spec, 0, correlation_id=0, client_id=None, frame=token, now=now, request=None)
    connection.begin(exchange)
    _continue(node, exchange, partial(connection.authenticator.respond, bytes(token), now))


def _continue(node: Server, exchange: Exchange, respond: Callable[[], bytes | Check | None]) -> None:
    """Go on with the exchange, and answer with its next message."""
    try:
        message = respond()
    except KafkaError as error:
        _refuse(node, exchange, error)
        return
    connection = exchange.connection
    if isinstance(message, Check):
        exchange.hold_back()
        node.check_credentials(connection, message.run, partial(_checked, node, exchange, message))
        return
    raw, is_complete = connection.sasl_tokens_expected, not connection.authenticator.in_exchange
    if is_complete:
        connection.authentication_completed()
    if raw:
        exchange.answer(NO_ANSWER if message is None else EncodedAnswer(message))
    else:
        lifetime_ms = connection.authenticator.session_lifetime_ms if is_complete else 0
        exchange.answer(SaslAuthenticateResponse(auth_bytes=message or b"", session_lifetime_ms=lifetime_ms))


def _checked(node: Server, exchange: Exchange, check: Check, result: Any) -> None:
    if isinstance(result, Exception):
        if not isinstance(result, KafkaError):
            log.error("credentials cannot be checked", exc_info=result)
            result = _CHECK_FAILED
        _refuse(node, exchange, result)
        return
    _continue(node, exchange, partial(check.then, result))


def _refuse(node: Server, exchange: Exchange, error: KafkaError) -> None:
    connection = exchange.connection
    connection.counts.unauthenticated += 1
    log.warning("authentication failed", extra={"peer": connection.peer_host, "reason": error.message})
    exchange.close_after_answer(f"authentication failed: {error.message}")
    response: Any = SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
    if connection.sasl_tokens_expected:
        response = None
    due_ms = exchange.now.monotonic_ms + node.failed_authentication_delay_ms
    exchange.wait_for(_FailedAuthentication(exchange, response, due_ms), ())


@dataclass(slots=True)
class _FailedAuthentication:
    """A delayed operation: slows down a client that guesses passwords."""

    exchange: Exchange
    response: SaslAuthenticateResponse | None
    """None: the protocol has no response."""
    deadline_ms: int

    def try_complete(self, grown_bytes: int) -> bool:
        return False

    def complete(self) -> None:
        if self.response is None:
            self.exchange.close(self.exchange.close_reason or "")
        else:
            self.exchange.answer(self.response)
