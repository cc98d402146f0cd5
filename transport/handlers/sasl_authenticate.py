"""SaslAuthenticate (key 36), v0-2: one message of the SASL exchange. v1 adds the session lifetime; v2 flexible.

After a failed authentication the node sends the error and closes the connection. No ACL check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange, Server


def handle(node: Server, exchange: Exchange, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    authenticator = exchange.connection.authenticator
    if not authenticator.mechanisms:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        return SaslAuthenticateResponse(auth_bytes=authenticator.respond(request.auth_bytes))
    except KafkaError as error:
        exchange.close_after_answer(error.message)
        return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
