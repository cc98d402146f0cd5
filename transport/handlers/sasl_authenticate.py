"""SaslAuthenticate (key 36), v0-2: one message of the exchange. v1 adds the session's lifetime; v2 flexible.

A failed proof is answered once, and the connection serves nothing afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from raylog.transport.node import Node
    from raylog.transport.request import RequestContext


def handle(node: Node, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    verifier = context.connection.verifier
    if verifier is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        return SaslAuthenticateResponse(auth_bytes=verifier.respond(request.auth_bytes))
    except KafkaError as error:
        context.connection.close_after_answer(error.message)
        return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
