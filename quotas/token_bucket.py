"""A bucket of tokens that refills at a constant rate: a burst empties it, and has no effect once it is refilled.

Source: Kafka's `TokenBucket`, KIP-599.
"""

from __future__ import annotations

from raylog.quotas.rate import THROTTLE_MS_MAX, Sampling


class TokenBucket:
    """Full at first. It holds as many tokens as refill during all samples of the rate that it replaces."""

    __slots__ = ("_span_ms", "_tokens", "_updated_ms")

    def __init__(self, sampling: Sampling) -> None:
        self._span_ms = sampling.span_ms
        self._tokens = float("inf")
        self._updated_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """Negative if more were taken than there were."""
        refilled = self._tokens + rate * max(now_ms - self._updated_ms, 0) / 1000
        self._tokens = min(refilled, rate * self._span_ms / 1000)
        self._updated_ms = max(now_ms, self._updated_ms)
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        """Take tokens, also if there are fewer."""
        self._tokens = self.tokens(rate, now_ms) - count

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long it takes until no token is missing."""
        missing = -self.tokens(rate, now_ms)
        return min(round(missing / rate * 1000), THROTTLE_MS_MAX) if missing > 0 else 0
