"""Whom the users of the operating system stand for when they connect by a Unix socket of a broker."""

from __future__ import annotations

import pwd
from typing import Final

from raylog.core.errors import ConfigError
from raylog.security.principal import Principal

_EVERYONE: Final = "*"


class LocalUsers:
    """The entries of local.principal.mapping: `user:principal`, where the user is a name, a number, or * for all."""

    def __init__(self, entries: tuple[str, ...]) -> None:
        """Raises ConfigError."""
        self._others: Principal | None = None
        self._principals: dict[int, Principal] = {}
        for entry in entries:
            user, _, name = entry.partition(":")
            if user == _EVERYONE:
                self._others = self._others or Principal("User", name)
            else:
                self._principals.setdefault(_number_of(user), Principal("User", name))

    def principal_of(self, user: int) -> Principal | None:
        """None if no entry names the user."""
        return self._principals.get(user, self._others)


def _number_of(user: str) -> int:
    """Raises ConfigError."""
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"local.principal.mapping: this machine has no user {user!r}") from None
