"""Delegation tokens: create, renew, expire and describe them (KIP-48). Pure."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from raylog.client.admin.calls import ANY_BROKER, CONTROLLER, Steps, ask
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

NAME = ""


class DelegationToken(NamedTuple):
    """A token with its secret. Times are wall clock, in milliseconds."""

    token_id: str
    hmac: Password
    """As base64: the password with which a client logs in."""
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


def create_delegation_token(
    *,
    owner: Principal | None = None,
    renewers: Collection[Principal] = (),
    max_lifetime_ms: int = -1,
    timeout: float | None = None,
) -> Steps[DelegationToken]:
    """A new token of the client itself, or of `owner`; -1: with the longest lifetime that is configured."""
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner.type if owner is not None else None,
        owner_principal_name=owner.name if owner is not None else None,
        renewers=tuple(CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers),
        max_lifetime_ms=max_lifetime_ms,
    )

    def read(response: Any) -> DelegationToken:
        return DelegationToken(
            response.token_id,
            _as_text(response.hmac),
            Principal(response.principal_type, response.principal_name),
            Principal(response.token_requester_principal_type, response.token_requester_principal_name),
            tuple(renewers),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )

    return (yield from ask(CONTROLLER, NAME, lambda _: request, read))


def describe_delegation_tokens(
    owners: Iterable[Principal] | None = None, *, timeout: float | None = None
) -> Steps[list[DelegationToken]]:
    """The tokens that this client may see: those of these owners, requesters or renewers, or all."""
    asked = None
    if owners is not None:
        asked = tuple(
            DescribeDelegationTokenOwner(principal_type=owner.type, principal_name=owner.name) for owner in owners
        )

    def read(response: Any) -> list[DelegationToken]:
        return [
            DelegationToken(
                each.token_id,
                _as_text(each.hmac),
                Principal(each.principal_type, each.principal_name),
                Principal(each.token_requester_principal_type, each.token_requester_principal_name),
                tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
            )
            for each in response.tokens
        ]

    return (yield from ask(ANY_BROKER, NAME, lambda _: DescribeDelegationTokenRequest(owners=asked), read))


def renew_delegation_token(hmac: Password | str, *, period_ms: int = -1, timeout: float | None = None) -> Steps[int]:
    """The new expiry of a token, by its secret as base64; -1: the period that is configured."""
    request = RenewDelegationTokenRequest(hmac=_as_bytes(hmac), renew_period_ms=period_ms)
    return (yield from ask(CONTROLLER, NAME, lambda _: request, lambda response: int(response.expiry_timestamp_ms)))


def expire_delegation_token(hmac: Password | str, *, period_ms: int = -1, timeout: float | None = None) -> Steps[int]:
    """The new expiry of a token, by its secret as base64; -1 removes the token now."""
    request = ExpireDelegationTokenRequest(hmac=_as_bytes(hmac), expiry_time_period_ms=period_ms)
    return (yield from ask(CONTROLLER, NAME, lambda _: request, lambda response: int(response.expiry_timestamp_ms)))


def _as_text(hmac: bytes) -> Password:
    return Password(b64encode(bytes(hmac)).decode())


def _as_bytes(hmac: Password | str) -> bytes:
    """Raises KafkaError."""
    try:
        return b64decode(hmac.reveal() if isinstance(hmac, Password) else hmac, validate=True)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the secret of a delegation token must be base64") from None
