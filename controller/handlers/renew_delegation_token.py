"""RenewDelegationToken (key 39), v1-2: the expiry of a delegation token (KIP-48) is moved. v2 flexible.

The token is named by its secret. Its owner and its renewers may renew it. Not served to clients that have logged in by
a token. No ACL check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from raylog.security.delegation_tokens import check_not_by_token

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        check_not_by_token(exchange.client)
        outcome = controller.delegation_tokens.renew(
            controller.image,
            bytes(request.hmac),
            requester=exchange.client.principal,
            period_ms=request.renew_period_ms,
            now_ms=exchange.now.wall_ms,
        )
        expiry_timestamp_ms = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_timestamp_ms)
