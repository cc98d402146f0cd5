"""The keys of signed tokens, as an endpoint published them last, and when to ask it again. Without clock and network.

A fetch is due every `refresh_ms`; after a failure with an exponential backoff; and early when a token names an unknown
key, since its issuer may have begun to use another one. Clients choose the ids of keys, so an early fetch that brings
nothing new counts like a failure: the next one waits twice as long, up to `backoff_max_ms`.

    due -> begin -> fetched | failed -> due ...
"""

from __future__ import annotations

from typing import Final

from raylog.security.sasl.json_web_tokens import KeySet

_DOUBLINGS_MAX: Final = 30


class KeyCache:
    """The owner fetches when `next_fetch_ms` has come. While a fetch fails, the keys of the last one stay in use."""

    def __init__(self, *, refresh_ms: int, backoff_ms: int, backoff_max_ms: int, now_ms: int) -> None:
        """Times are those of the monotonic clock."""
        self.keys: KeySet | None = None
        """None before the first successful fetch."""
        self.attempted = False
        """Whether the first fetch has ended, in whatever way."""
        self.next_fetch_ms: int | None = now_ms
        """None during a fetch."""
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = max(backoff_ms, backoff_max_ms)
        self._ended_ms = now_ms
        self._fruitless = 0
        """Fetches in a row that failed, or that were early and brought nothing new."""
        self._early = False

    def begin(self) -> None:
        self.next_fetch_ms = None

    def fetched(self, keys: KeySet, now_ms: int) -> None:
        fruitless = self._early and keys == self.keys
        self.keys = keys
        self._ended(now_ms, fruitless=fruitless)
        self.next_fetch_ms = now_ms + self._refresh_ms

    def failed(self, now_ms: int) -> None:
        self._ended(now_ms, fruitless=True)
        self.next_fetch_ms = now_ms + min(self._wait_ms(), self._refresh_ms)

    def key_missing(self) -> None:
        """A token names a key that is not in `keys`."""
        if self.next_fetch_ms is not None:
            early_ms = self._ended_ms + self._wait_ms()
            if early_ms < self.next_fetch_ms:
                self.next_fetch_ms, self._early = early_ms, True

    def _ended(self, now_ms: int, *, fruitless: bool) -> None:
        self.attempted = True
        self._early = False
        self._ended_ms = now_ms
        self._fruitless = self._fruitless + 1 if fruitless else 0

    def _wait_ms(self) -> int:
        """How long to wait after the last fetch."""
        doublings = min(max(self._fruitless - 1, 0), _DOUBLINGS_MAX)
        return min(self._backoff_ms << doublings, self._backoff_max_ms)
