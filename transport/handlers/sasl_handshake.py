"""SaslHandshake (key 17), v0-1: selects the SASL mechanism, on listeners that authenticate by SASL.

v1: the exchange continues in SaslAuthenticate; after v0 it continues in frames that contain nothing but its messages.
No ACL check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange, Server


def handle(node: Server, exchange: Exchange, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    authenticator = exchange.connection.authenticator
    try:
        authenticator.choose(request.mechanism, exchange.now)
    except KafkaError as error:
        if authenticator.mechanisms and not exchange.connection.authenticated:
            exchange.close_after_answer(f"SaslHandshake was refused: {error.message}")
        return SaslHandshakeResponse(error_code=error.code, mechanisms=authenticator.mechanisms)
    if exchange.api_version == 0:
        exchange.connection.expect_sasl_tokens()
    return SaslHandshakeResponse(mechanisms=authenticator.mechanisms)
