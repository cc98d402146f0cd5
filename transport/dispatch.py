"""From a frame to its handler and back: headers, versions, and what may be asked before authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from raylog.core.errors import ProtocolViolation
from raylog.protocol import registry
from raylog.protocol.framing import frame
from raylog.protocol.header import decode_request_header, decode_request_start, encode_response_header
from raylog.protocol.registry import ApiSpec, api_for
from raylog.protocol.wire import Buffer
from raylog.transport.handlers import api_versions
from raylog.transport.request import AnsweredLater, CloseConnection, NoResponse, Parked, RequestContext

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.transport.node import Node
    from raylog.transport.request import AcceptedConnection

BEFORE_AUTHENTICATION: Final = frozenset({registry.API_VERSIONS, registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE})


def dispatch(node: Node, connection: AcceptedConnection, request_frame: memoryview, now: Now) -> None:
    """Serve one request: answer it, park it, or close a connection whose bytes make no sense.

    Never raises for anything the peer has sent. An exception that leaves here is a bug or a broken invariant.
    """
    try:
        _serve(node, connection, request_frame, now)
    except (ProtocolViolation, CloseConnection) as reason:
        connection.close(str(reason))
        node.touch(connection)


def _serve(node: Node, connection: AcceptedConnection, request_frame: memoryview, now: Now) -> None:
    key, version, correlation_id = decode_request_start(request_frame)
    spec = api_for(key)
    handler = node.handlers.get(key)
    if spec is None or handler is None or (spec.internal and not connection.listener.internal):
        raise ProtocolViolation(f"no request has key {key}, or it is not served here")
    if not connection.authenticated and key not in BEFORE_AUTHENTICATION:
        raise CloseConnection(f"{spec.name} on the internal listener before the cluster's secret was proven")
    if not spec.serves(version):
        if key != registry.API_VERSIONS:
            raise ProtocolViolation(f"{spec.name} is not served in version {version}")
        connection.answer(_encode(spec, 0, correlation_id, api_versions.unsupported(node, connection)))
        return
    header, body = decode_request_header(request_frame)
    request = spec.decode_request(version, request_frame, body)

    def reply(response: Any) -> None:
        send_later(_encode(spec, version, correlation_id, response))

    def reply_encoded(response: Buffer) -> None:
        send_later(frame([response]))

    def send_later(output: list[Buffer]) -> None:
        def send() -> None:
            connection.parked_ticket = None
            connection.answer(output)
            node.touch(connection)

        if key in node.at_once:
            send()
        else:
            node.send_when_committed(send)

    context = RequestContext(connection, version, header.client_id, now, request_frame, reply, reply_encoded)
    response = handler(node, context, request)
    if isinstance(response, Parked):
        connection.parked_ticket = node.delayed.park(response.operation, response.keys)
    elif isinstance(response, NoResponse):
        connection.answer(())
    elif not isinstance(response, AnsweredLater):
        output = _encode(spec, version, correlation_id, response)
        if key in node.at_once or node.all_committed:
            connection.answer(output)
        else:
            send_later(output)


def _encode(spec: ApiSpec, version: int, correlation_id: int, response: Any) -> list[Buffer]:
    header = encode_response_header(spec.key, version, correlation_id)
    return frame([header, *spec.encode_response(version, response)])
