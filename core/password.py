"""A secret value that cannot be printed by accident."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"


class Password:
    """Shows `[hidden]` wherever it is printed, formatted or logged; `reveal` returns the secret itself.

    It is not a dataclass: `dataclasses.asdict` would copy the secret into a plain dictionary.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def reveal(self) -> str:
        return self._secret

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Password):
            return NotImplemented
        return self._secret == other._secret

    def __hash__(self) -> int:
        return hash((Password, self._secret))
