"""Logins by delegation tokens (KIP-48): the SCRAM credentials of tokens, derived from their secrets when needed."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from functools import partial
from typing import Final

from raylog.security.delegation_tokens import DelegationToken, TokenKey
from raylog.security.sasl.mechanism import Identity
from raylog.security.sasl.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    PendingUser,
    ScramCredential,
    ScramMechanism,
    ScramUser,
    credential_of,
    salted_password,
)

CREDENTIALS_MAX: Final = 10_000
"""Credentials that are kept: those used last."""


class TokenLogins:
    """The user of SCRAM is the id of a token, the password its secret as base64. The salts are this broker's own."""

    def __init__(self, key: TokenKey, *, salt_key: bytes) -> None:
        self._key = key
        self._salt_key = salt_key
        self._credentials: OrderedDict[tuple[str, ScramMechanism], ScramCredential] = OrderedDict()

    def __len__(self) -> int:
        return len(self._credentials)

    def user(
        self, mechanism: ScramMechanism, token: DelegationToken | None, *, now_ms: int
    ) -> ScramUser | PendingUser | None:
        """The owner of the token; None without one, and for one that has expired."""
        if token is None or token.has_expired(now_ms):
            return None
        place = token.token_id, mechanism
        identity = Identity(token.owner, expires_ms=token.expiry_timestamp, by_token=True)
        credential = self._credentials.get(place)
        if credential is None:
            return PendingUser(partial(self._derive, *place), partial(self._keep, place, identity))
        self._credentials.move_to_end(place)
        return ScramUser(credential, identity)

    def _derive(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        salt = hmac.digest(self._salt_key, token_id.encode(), mechanism.digest)[:SALT_BYTES]
        salted = salted_password(mechanism, self._key.password_of(token_id).reveal(), salt, ITERATIONS_MIN)
        return credential_of(mechanism, salted, salt, ITERATIONS_MIN)

    def _keep(self, place: tuple[str, ScramMechanism], identity: Identity, credential: ScramCredential) -> ScramUser:
        self._credentials[place] = credential
        if len(self._credentials) > CREDENTIALS_MAX:
            self._credentials.popitem(last=False)
        return ScramUser(credential, identity)
