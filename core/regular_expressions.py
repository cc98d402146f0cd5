"""Regular expressions that clients send, as in Kafka 4: RE2, in linear time. They must match whole texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import re2

from raylog.core.errors import ErrorCode, KafkaError

_MEMORY_BYTES_MAX = 1 << 20
"""For one compiled expression."""


def matching(regex: str, names: Iterable[str]) -> list[str]:
    """The names that the expression matches as a whole, in order. Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
    fullmatch = compiled(regex).fullmatch
    return sorted(name for name in names if fullmatch(name) is not None)


def check(regex: str) -> None:
    """Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
    compiled(regex)


def compiled(regex: str) -> Any:
    """An object of re2 with `fullmatch`. Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"`{regex[:200]}` is not a valid regular expression: {_reason(error)}.",
        ) from error


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unknown error"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
