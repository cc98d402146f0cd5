"""A bucket of tokens that refills at a constant rate: a burst empties it, and has no effect once it is refilled.

Source: Kafka's `TokenBucket`, KIP-599.
"""

from __future__ import annotations

from raylog.quotas.rate import THROTTLE_MS_MAX, Sampling


class TokenBucket:
    """Full at first. It holds as many tokens as refill during all samples of the rate that it replaces."""

    __slots__ = ("_rate", "_span_ms", "_tokens", "_updated_ms")

    def __init__(self, sampling: Sampling) -> None:
        self._span_ms = sampling.span_ms
        self._tokens = float("inf")
        self._updated_ms = 0
        self._rate = 0.0
        """The one of the last call."""

    def tokens(self, rate: float, now_ms: int) -> float:
        """Negative if more were taken than there were."""
        self._rate = rate
        self._tokens = min(self._refilled(now_ms), self._capacity)
        self._updated_ms = max(now_ms, self._updated_ms)
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        """Take tokens, also if there are fewer."""
        self._tokens = self.tokens(rate, now_ms) - count

    def is_like_new(self, now_ms: int) -> bool:
        return self._refilled(now_ms) >= self._capacity

    @property
    def _capacity(self) -> float:
        return self._rate * self._span_ms / 1000

    def _refilled(self, now_ms: int) -> float:
        return self._tokens + self._rate * max(now_ms - self._updated_ms, 0) / 1000

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long it takes until no token is missing."""
        missing = -self.tokens(rate, now_ms)
        return min(round(missing / rate * 1000), THROTTLE_MS_MAX) if missing > 0 else 0
