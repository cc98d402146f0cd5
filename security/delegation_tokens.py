"""Delegation tokens (KIP-48): short-lived secrets with which a client logs in as their owner, by SCRAM.

A token's secret is an HMAC of its id, made with delegation.token.secret.key. Every node with the key can compute it, so
that only the id, the principals and the times of a token are stored.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass
from typing import Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.security.principal import ANONYMOUS, Client, Principal
from raylog.security.security_protocol import SecurityProtocol

HMAC_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """All that is known of a token without the key. Times are wall clock, in milliseconds."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp: int
    max_timestamp: int
    """The token cannot be renewed beyond this."""
    expiry_timestamp: int
    """At most `max_timestamp`."""

    def has_expired(self, now_ms: int) -> bool:
        return now_ms >= self.expiry_timestamp

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Whether the principal may renew and expire the token. Its requester may not, as in Kafka."""
        return principal == self.owner or principal in self.renewers

    def involves(self, principal: Principal) -> bool:
        """Whether the principal may see the token, and finds it under its own name."""
        return principal == self.requester or self.may_be_changed_by(principal)


class TokenKey:
    """delegation.token.secret.key: derives the secrets of all tokens."""

    def __init__(self, secret: Password) -> None:
        self._secret = secret

    def hmac_of(self, token_id: str) -> bytes:
        """The secret of a token. Source: Kafka's DelegationTokenManager.createHmac."""
        return hmac.digest(self._secret.reveal().encode(), token_id.encode(), "sha512")

    def password_of(self, token_id: str) -> Password:
        """The same as the password with which a client logs in."""
        return Password(b64encode(self.hmac_of(token_id)).decode())


def check_token_requests(client: Client, security: SecurityProtocol) -> None:
    """Raises KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) unless the client of a listener may manage tokens.

    It must be authenticated, and not by a token.
    """
    if security is SecurityProtocol.PLAINTEXT or client.principal == ANONYMOUS:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    check_not_by_token(client)


def check_not_by_token(client: Client) -> None:
    """Raises KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED): a stolen token cannot be exchanged for others."""
    if client.token_authenticated:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
