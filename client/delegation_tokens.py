"""(shell) The requests about delegation tokens, one call each. Error codes are raised as KafkaError."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection
from dataclasses import dataclass

from raylog.client.cluster_client import ClusterClient
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from raylog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from raylog.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from raylog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from raylog.security.principal import Principal


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its secret. Times are wall clock, in milliseconds."""

    token_id: str
    hmac: Password
    """As base64: the password with which a client logs in."""
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int


def create(
    client: ClusterClient,
    *,
    owner: Principal | None = None,
    renewers: Collection[Principal] = (),
    max_lifetime_ms: int = -1,
) -> Token:
    """A new token of the client itself, or of `owner`; -1: with the longest lifetime that is configured."""
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner.type if owner is not None else None,
        owner_principal_name=owner.name if owner is not None else None,
        renewers=tuple(CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers),
        max_lifetime_ms=max_lifetime_ms,
    )
    answer = client.call_any(request)
    _check(answer.error_code)
    return Token(
        answer.token_id,
        _as_text(answer.hmac),
        Principal(answer.principal_type, answer.principal_name),
        Principal(answer.token_requester_principal_type, answer.token_requester_principal_name),
        tuple(renewers),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )


def describe(client: ClusterClient, owners: Collection[Principal] | None = None) -> list[Token]:
    """The tokens that the client may see: those of these owners, requesters or renewers; None: all of them."""
    asked = None
    if owners is not None:
        asked = tuple(
            DescribeDelegationTokenOwner(principal_type=owner.type, principal_name=owner.name) for owner in owners
        )
    answer = client.call_any(DescribeDelegationTokenRequest(owners=asked))
    _check(answer.error_code)
    return [
        Token(
            each.token_id,
            _as_text(each.hmac),
            Principal(each.principal_type, each.principal_name),
            Principal(each.token_requester_principal_type, each.token_requester_principal_name),
            tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
        )
        for each in answer.tokens
    ]


def renew(client: ClusterClient, hmac: Password, *, period_ms: int = -1) -> int:
    """The new expiry; -1: the period that is configured."""
    answer = client.call_any(RenewDelegationTokenRequest(hmac=b64decode(hmac.reveal()), renew_period_ms=period_ms))
    _check(answer.error_code)
    return int(answer.expiry_timestamp_ms)


def expire(client: ClusterClient, hmac: Password, *, period_ms: int = -1) -> int:
    """The new expiry; -1 removes the token now."""
    request = ExpireDelegationTokenRequest(hmac=b64decode(hmac.reveal()), expiry_time_period_ms=period_ms)
    answer = client.call_any(request)
    _check(answer.error_code)
    return int(answer.expiry_timestamp_ms)


def _as_text(hmac: bytes) -> Password:
    return Password(b64encode(bytes(hmac)).decode())


def _check(code: ErrorCode) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(code)
