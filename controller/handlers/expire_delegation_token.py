"""ExpireDelegationToken (key 40), v1-2: a delegation token (KIP-48) expires earlier, or now. v2 flexible.

The token is named by its secret. Its owner and its renewers may expire it; a negative period removes it. Not served to
clients that have logged in by a token. No ACL check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from raylog.security.delegation_tokens import check_not_by_token

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        check_not_by_token(exchange.client)
        outcome = controller.delegation_tokens.expire(
            controller.image,
            bytes(request.hmac),
            requester=exchange.client.principal,
            period_ms=request.expiry_time_period_ms,
            now_ms=exchange.now.wall_ms,
        )
        expiry_timestamp_ms = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_timestamp_ms)
