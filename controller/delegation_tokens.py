"""Commands about delegation tokens (KIP-48, KIP-373): create, renew and expire them, and remove the expired ones.

Source of the rules: Kafka's DelegationTokenControlManager.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from raylog.config.delegation_tokens import DelegationTokenSettings
from raylog.core.config import LONG_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, token_created
from raylog.metadata.records import DelegationTokenExpiryChanged, DelegationTokenRemoved, MetadataRecord
from raylog.security.delegation_tokens import HMAC_BYTES, DelegationToken, TokenKey
from raylog.security.principal import Principal

TOKENS_MAX: Final = 10_000
"""Of a cluster: expired tokens count until they are removed."""
TOKENS_PER_OWNER_MAX: Final = 1000
RENEWERS_MAX: Final = 50
NAMES_BYTES_MAX: Final = 4096
"""Size of the names of a token's owner, requester and renewers, all together."""
USER: Final = "User"
"""The only type of principals that requests may name."""
_FORGOTTEN_MAX: Final = 1000
"""Removed tokens that are kept in the index."""


class CreatedToken(NamedTuple):
    token: DelegationToken
    hmac: bytes


class DelegationTokens:
    """The commands of clients."""

    def __init__(self, settings: DelegationTokenSettings) -> None:
        self._settings = settings
        self._index = None if settings.secret_key is None else TokenIndex(TokenKey(settings.secret_key))

    def create(
        self,
        image: MetadataImage,
        *,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        max_lifetime_ms: int,
        new_id: Callable[[], UUID],
        now_ms: int,
    ) -> Outcome[CreatedToken, MetadataRecord]:
        """A token that is valid for `max_lifetime_ms`, but at most as configured; 0 and negative: as configured.

        Raises KafkaError: INVALID_PRINCIPAL_TYPE, DELEGATION_TOKEN_AUTH_DISABLED, POLICY_VIOLATION at a limit.
        """
        for principal in (*(() if owner == requester else (owner,)), *renewers):
            if principal.type != USER or not principal.name:
                message = f"Owners and renewers must be principals of type {USER} with a name."
                raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, message)
        key = self._enabled().key
        renewers = tuple(dict.fromkeys(renewers))
        _check_limits(image, owner, requester, renewers)
        lifetime_ms = _at_most(self._settings.max_lifetime_ms, max_lifetime_ms)
        max_timestamp = min(now_ms + lifetime_ms, LONG_MAX)
        token = DelegationToken(
            token_id=_new_token_id(new_id),
            owner=owner,
            requester=requester,
            renewers=renewers,
            issue_timestamp=now_ms,
            max_timestamp=max_timestamp,
            expiry_timestamp=min(now_ms + self._settings.expiry_time_ms, max_timestamp),
        )
        return Outcome(CreatedToken(token, key.hmac_of(token.token_id)), [token_created(token)])

    def renew(
        self, image: MetadataImage, hmac: bytes, *, requester: Principal, period_ms: int, now_ms: int
    ) -> Outcome[int, MetadataRecord]:
        """The new expiry: `period_ms` from now, but at most as configured; 0 and negative: as configured.

        It may be earlier than the old one, as in Kafka. Raises KafkaError: DELEGATION_TOKEN_AUTH_DISABLED, _NOT_FOUND,
        _EXPIRED, _OWNER_MISMATCH.
        """
        token = self._find(image, hmac)
        if token.has_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_may_change(token, requester)
        return _expiry_changed(token, now_ms + _at_most(self._settings.expiry_time_ms, period_ms))

    def expire(
        self, image: MetadataImage, hmac: bytes, *, requester: Principal, period_ms: int, now_ms: int
    ) -> Outcome[int, MetadataRecord]:
        """The new expiry: `period_ms` from now, at most the token's maximum. A negative period removes the token now.

        Raises KafkaError: DELEGATION_TOKEN_AUTH_DISABLED, _NOT_FOUND, _OWNER_MISMATCH, _EXPIRED.
        """
        token = self._find(image, hmac)
        _check_may_change(token, requester)
        if period_ms < 0:
            return Outcome(now_ms, [DelegationTokenRemoved(token.token_id)])
        if token.has_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return _expiry_changed(token, now_ms + period_ms)

    def _enabled(self) -> TokenIndex:
        """Raises KafkaError(DELEGATION_TOKEN_AUTH_DISABLED) if there is no secret key."""
        if self._index is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self._index

    def _find(self, image: MetadataImage, hmac: bytes) -> DelegationToken:
        token = self._enabled().find(image.delegation_tokens, hmac)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token


def remove_expired(image: MetadataImage, *, now_ms: int, most: int) -> Outcome[bool, MetadataRecord]:
    """Remove the tokens that have expired, but at most so many; the response is whether there may be more."""
    expired = (token.token_id for token in image.delegation_tokens.values() if token.has_expired(now_ms))
    removed: list[MetadataRecord] = [DelegationTokenRemoved(token_id) for token_id in islice(expired, most)]
    return Outcome(len(removed) == most, removed)


class TokenIndex:
    """Finds tokens by their secrets.

    Each search first adds the new tokens. These are the last in `tokens`: once a token is in the index, all before it
    are as well. Only digests of the secrets are kept and compared, so that the time that a comparison takes
    reveals nothing of a secret.
    """

    def __init__(self, key: TokenKey) -> None:
        self.key = key
        self._ids: dict[bytes, str] = {}
        """Token ids by the digests of the secrets."""
        self._indexed: set[str] = set()

    def __len__(self) -> int:
        return len(self._indexed)

    def find(self, tokens: dict[str, DelegationToken], hmac: bytes) -> DelegationToken | None:
        if len(hmac) != HMAC_BYTES:
            return None
        self._follow(tokens)
        token_id = self._ids.get(sha256(hmac).digest())
        return None if token_id is None else tokens.get(token_id)

    def _follow(self, tokens: dict[str, DelegationToken]) -> None:
        if len(self._indexed) > 2 * len(tokens) + _FORGOTTEN_MAX:
            self._ids.clear()
            self._indexed.clear()
        for token_id in reversed(tokens):
            if token_id in self._indexed:
                break
            self._ids[sha256(self.key.hmac_of(token_id)).digest()] = token_id
            self._indexed.add(token_id)


def _at_most(most: int, wanted: int) -> int:
    return min(most, wanted) if wanted > 0 else most


def _expiry_changed(token: DelegationToken, wanted: int) -> Outcome[int, MetadataRecord]:
    expiry_timestamp = min(wanted, token.max_timestamp)
    return Outcome(expiry_timestamp, [DelegationTokenExpiryChanged(token.token_id, expiry_timestamp)])


def _check_may_change(token: DelegationToken, requester: Principal) -> None:
    """Raises KafkaError(DELEGATION_TOKEN_OWNER_MISMATCH)."""
    if not token.may_be_changed_by(requester):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_limits(
    image: MetadataImage, owner: Principal, requester: Principal, renewers: tuple[Principal, ...]
) -> None:
    """Raises KafkaError(POLICY_VIOLATION)."""
    tokens = image.delegation_tokens
    names_bytes = sum(len(principal.name.encode()) for principal in (owner, requester, *renewers))
    if len(renewers) > RENEWERS_MAX:
        reason = f"A delegation token has at most {RENEWERS_MAX} renewers."
    elif names_bytes > NAMES_BYTES_MAX:
        reason = f"The principals of a delegation token have names of at most {NAMES_BYTES_MAX} bytes."
    elif len(tokens) >= TOKENS_MAX:
        reason = f"The cluster has {len(tokens)} delegation tokens, the most it can have."
    elif (
        len(tokens) >= TOKENS_PER_OWNER_MAX
        and sum(token.owner == owner for token in tokens.values()) >= TOKENS_PER_OWNER_MAX
    ):
        reason = f"{owner} has {TOKENS_PER_OWNER_MAX} delegation tokens, the most that one owner can have."
    else:
        return
    raise KafkaError(ErrorCode.POLICY_VIOLATION, reason)


def _new_token_id(new_id: Callable[[], UUID]) -> str:
    """Like Kafka's ids; none of them begins with a hyphen, with which an option of a command begins."""
    while True:
        token_id = urlsafe_b64encode(new_id().bytes).decode().rstrip("=")
        if not token_id.startswith("-"):
            return token_id
