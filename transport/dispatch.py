"""From a frame to its handler: headers, versions, and the requests allowed before authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.core.errors import ProtocolViolation
from raylog.protocol import registry
from raylog.protocol.header import decode_client_id, decode_request_start
from raylog.protocol.registry import api_for
from raylog.transport.exchange import Exchange, Server
from raylog.transport.handlers import api_versions
from raylog.transport.handlers.sasl_authenticate import serve_token

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.transport.accepted_connection import AcceptedConnection

SASL_APIS: Final = frozenset({registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE})
BEFORE_AUTHENTICATION: Final = SASL_APIS | {registry.API_VERSIONS}


def dispatch(node: Server, connection: AcceptedConnection, request_frame: memoryview, now: Now) -> None:
    """Serve one request: respond, delay it, or close a connection whose bytes are invalid.

    Never raises for anything the peer has sent: an exception raised here is a bug or a broken invariant.
    """
    try:
        _serve(node, connection, request_frame, now)
    except ProtocolViolation as reason:
        connection.close(str(reason))
        node.touch(connection)


def _serve(node: Server, connection: AcceptedConnection, request_frame: memoryview, now: Now) -> None:
    if connection.sasl_tokens_expected:
        serve_token(node, connection, request_frame, now)
        return
    quotas = node.quotas
    began_ns = 0 if quotas is None else quotas.begin_ns()
    key, version, correlation_id = decode_request_start(request_frame)
    if connection.in_work and _must_wait(connection, key):
        connection.put_back()
        return
    spec = api_for(key)
    handler = node.handlers_on(connection.listener).get(key)
    if spec is None or handler is None or (spec.internal and not connection.listener.internal):
        raise ProtocolViolation(f"API key {key} is unknown, or not supported on this listener")
    if not connection.authenticated and key not in BEFORE_AUTHENTICATION:
        raise ProtocolViolation(f"{spec.name} was sent before the connection was authenticated")
    if key not in SASL_APIS and connection.authenticator.session_expired(now):
        raise ProtocolViolation(
            f"{spec.name} was sent after the session had expired: the client must authenticate again"
        )
    if not spec.serves(version):
        if key != registry.API_VERSIONS:
            raise ProtocolViolation(f"{spec.name} version {version} is not supported")
        exchange = Exchange(
            node, connection, spec, 0, correlation_id=correlation_id, client_id=None, frame=request_frame, now=now
        )
        connection.begin(exchange)
        exchange.answer(api_versions.unsupported(node, connection))
        return
    client_id, body = decode_client_id(spec, version, request_frame)
    request = spec.decode_request(version, request_frame, body)
    exchange = Exchange(
        node,
        connection,
        spec,
        version,
        correlation_id=correlation_id,
        client_id=client_id,
        frame=request_frame,
        now=now,
        request=request,
    )
    exchange.sources = node.commit_sources(key)
    connection.begin(exchange)
    if began_ns:
        exchange.begin_work(began_ns)
    response = handler(node, exchange, request)
    exchange.frame = _RELEASED
    if response is not None:
        exchange.answer(response)
    if exchange.output is None:
        exchange.local_ns = node.work_clock_ns() - exchange.began_ns
    if began_ns:
        exchange.end_work()


def _must_wait(connection: AcceptedConnection, key: int) -> bool:
    """Whether a request of this kind must wait for the ones before it.

    A SASL request may change the principal, and the Fetches of a session have consecutive epochs.
    """
    if key in SASL_APIS:
        return True
    return key == registry.FETCH and any(_is_fetch(pending) for pending in connection.unfinished)


def _is_fetch(pending: object) -> bool:
    return isinstance(pending, Exchange) and pending.spec.key == registry.FETCH


_RELEASED: Final = memoryview(b"")
