"""SaslHandshake (key 17), v0-1: selects the SASL mechanism, on listeners that authenticate by SASL.

v1: the exchange continues in SaslAuthenticate. After v0 it would continue in raw bytes, which no mechanism here uses.
No ACL check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange, Server


def handle(node: Server, exchange: Exchange, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    authenticator = exchange.connection.authenticator
    try:
        if exchange.api_version == 0 and authenticator.mechanisms:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        authenticator.choose(request.mechanism)
    except KafkaError as error:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=authenticator.mechanisms)
    return SaslHandshakeResponse(mechanisms=authenticator.mechanisms)
