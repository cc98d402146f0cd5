"""CreateDelegationToken (key 38), v1-3: a new delegation token (KIP-48). v2 flexible; v3 for another owner (KIP-373).

The response contains the secret of the token. Without an owner, or with an empty name, the token is the client's own;
for another owner the client requires CREATE_TOKENS on the user. Not served to clients that have logged in by a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from raylog.security.acl import Operation, Resource
from raylog.security.delegation_tokens import check_not_by_token
from raylog.security.principal import Principal

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = owner = exchange.client.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        check_not_by_token(exchange.client)
        if owner != requester:
            controller.authorization.check(exchange, Operation.CREATE_TOKENS, Resource.user(owner))
        outcome = controller.delegation_tokens.create(
            controller.image,
            owner=owner,
            requester=requester,
            renewers=[Principal(each.principal_type, each.principal_name) for each in request.renewers],
            max_lifetime_ms=request.max_lifetime_ms,
            new_id=controller.new_id,
            now_ms=exchange.now.wall_ms,
        )
        token, hmac = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return _response(error.code, owner, requester)
    return _response(
        ErrorCode.NONE,
        owner,
        requester,
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiry_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
    )


def _response(
    code: ErrorCode,
    owner: Principal,
    requester: Principal,
    *,
    issue_timestamp_ms: int = -1,
    expiry_timestamp_ms: int = -1,
    max_timestamp_ms: int = -1,
    token_id: str = "",
    hmac: bytes = b"",
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=issue_timestamp_ms,
        expiry_timestamp_ms=expiry_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        token_id=token_id,
        hmac=hmac,
    )
