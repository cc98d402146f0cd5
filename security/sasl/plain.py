"""PLAIN: user name and password in one message. Source: RFC 4616. Only TLS keeps the password from others."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from raylog.core.password import Password
from raylog.security.operator_function import call
from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import Check, Identity, authentication_failed

PLAIN: Final = "PLAIN"
_PARTS: Final = 3
_INVALID: Final = "Authentication failed: Invalid username or password"

CheckPassword = Callable[[str, str], bool]
"""Whether this is the password of this user. May block; what it raises counts as False."""


class PlainServer:
    """One exchange: the client's message `[authorization id] NUL user NUL password`, and an empty answer."""

    def __init__(self, users: Mapping[str, Password], check: CheckPassword | None = None) -> None:
        """`check` decides in place of `users`."""
        self._users = users
        self._check = check
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> bytes | Check:
        user, password = _parse(message)
        if self._check is not None:
            check = self._check
            return Check(lambda: _checked(check, user, password), lambda _: self._complete(user))
        expected = self._users.get(user)
        matches = hmac.compare_digest(password.encode(), (expected.reveal() if expected else "").encode())
        if expected is None or not matches:
            raise authentication_failed(_INVALID)
        return self._complete(user)

    def _complete(self, user: str) -> bytes:
        self.identity = Identity(Principal("User", user))
        return b""


def _checked(check: CheckPassword, user: str, password: str) -> None:
    if call(check, user, password) is not True:
        raise authentication_failed(_INVALID)


def _parse(message: bytes) -> tuple[str, str]:
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise authentication_failed("Authentication failed: the message is not UTF-8") from None
    if len(parts) != _PARTS:
        raise authentication_failed(
            f"Authentication failed: the message has {len(parts)} parts, separated by NUL, in place of {_PARTS}"
        )
    authorization_id, user, password = parts
    if not user:
        raise authentication_failed("Authentication failed: username not specified")
    if not password:
        raise authentication_failed("Authentication failed: password not specified")
    if authorization_id not in ("", user):
        raise authentication_failed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return user, password


class PlainClient:
    mechanism = PLAIN

    def __init__(self, user: str, password: Password) -> None:
        self.first_message = b"\0".join((b"", user.encode(), password.reveal().encode()))

    def respond(self, message: bytes) -> None:
        """The server's only message is empty."""
