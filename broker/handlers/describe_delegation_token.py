"""DescribeDelegationToken (key 41), v1-3: delegation tokens with their secrets (KIP-48). v2 flexible; v3 requesters.

Null owners mean all, an empty list none; a token belongs to its requester and its renewers as well as to its owner.
A client sees the tokens that belong to it, and others if it has DESCRIBE on the token or DESCRIBE_TOKENS on its owner.
Tokens that have expired are listed until they are removed. Not served to clients that have logged in by a token.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from raylog.security.acl import Operation, Resource
from raylog.security.delegation_tokens import check_token_requests
from raylog.security.principal import Principal

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.security.delegation_tokens import DelegationToken, TokenKey
    from raylog.transport.exchange import Exchange

STEP_TOKENS: Final = 200
"""Tokens that are filtered before other connections are served."""


def handle(
    broker: BrokerServices, exchange: Exchange, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse | None:
    try:
        check_token_requests(exchange.client, exchange.connection.listener.security)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    if broker.token_key is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {Principal(owner.principal_type, owner.principal_name) for owner in request.owners}
    exchange.answer_in_steps(_tokens(broker, exchange, owners, broker.token_key))
    return None


def _tokens(
    broker: BrokerServices, exchange: Exchange, owners: set[Principal] | None, key: TokenKey
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    found = EncodedElements(DescribedDelegationToken, of=DescribeDelegationTokenResponse, version=exchange.api_version)
    for number, token_id in enumerate(list(broker.image.delegation_tokens), 1):
        token = broker.image.delegation_tokens.get(token_id)
        if token is not None and _is_wanted(token, owners) and _may_see(broker, exchange, token):
            found.add(_described(token, key.hmac_of(token_id)))
        if number % STEP_TOKENS == 0:
            yield
    return DescribeDelegationTokenResponse(tokens=cast(Any, found))


def _is_wanted(token: DelegationToken, owners: set[Principal] | None) -> bool:
    return owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))


def _may_see(broker: BrokerServices, exchange: Exchange, token: DelegationToken) -> bool:
    return (
        token.involves(exchange.client.principal)
        or broker.authorization.may(
            exchange, Operation.DESCRIBE, Resource.delegation_token(token.token_id), logs_denial=False
        )
        or broker.authorization.may(exchange, Operation.DESCRIBE_TOKENS, Resource.user(token.owner), logs_denial=False)
    )


def _described(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiry_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
        renewers=tuple(
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ),
    )
