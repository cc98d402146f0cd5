"""The pause before a retry, which doubles with each attempt. Source: KIP-580."""

from __future__ import annotations

from collections.abc import Callable

DOUBLINGS_MAX = 30


def backoff_ms(attempt: int, first_ms: int, longest_ms: int, jitter: Callable[[], float]) -> int:
    """The pause in milliseconds after the failure of this attempt, counted from 1."""
    return int(min(first_ms << min(attempt - 1, DOUBLINGS_MAX), longest_ms) * jitter())
