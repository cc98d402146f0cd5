"""SaslHandshake (key 17), v0-1: which mechanism the peer will use. Served where a listener asks for a proof.

v1: the exchange goes on in SaslAuthenticate; in v0 it would be raw bytes, which no mechanism here uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from raylog.security.cluster_secret import MECHANISM

if TYPE_CHECKING:
    from raylog.transport.node import Node
    from raylog.transport.request import RequestContext


def handle(node: Node, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    verifier = context.connection.verifier
    if verifier is None or verifier.succeeded:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if request.mechanism != MECHANISM or context.api_version == 0:
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=(MECHANISM,))
    verifier.mechanism_chosen = True
    return SaslHandshakeResponse(mechanisms=(MECHANISM,))
