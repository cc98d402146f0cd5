"""Limits on the rate of new connections: of a broker, of a listener, and of an IP address (KIP-612)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from raylog.quotas.client_quotas import CONNECTION_CREATION_RATE, Limit
from raylog.quotas.rate import Sampling
from raylog.quotas.token_bucket import TokenBucket
from raylog.quotas.usage import Meters, ThrottledTime

WAIT_MS_MAX: Final = 10_000
"""A connection that would wait for longer until it is served is closed instead."""


class Delay(NamedTuple):
    """What becomes of a new connection: after so long it is served, or closed."""

    wait_ms: int
    closes: bool


AT_ONCE: Final = Delay(0, closes=False)
REFUSED: Final = Delay(0, closes=True)


class ConnectionRates:
    """The connections that were opened recently, in buckets that hold as many as are permitted in all samples."""

    def __init__(self, sampling: Sampling, *, rate_max: int, listener_rates: Mapping[str, int]) -> None:
        self.throttled = ThrottledTime()
        self._window_ms = sampling.window_ms
        self._shared: dict[str, tuple[TokenBucket, int]] = {
            listener: (TokenBucket(sampling), rate) for listener, rate in listener_rates.items()
        }
        self._all = (TokenBucket(sampling), rate_max)
        self._by_address = Meters(lambda: TokenBucket(sampling), span_ms=sampling.span_ms)

    def opened(self, listener: str, address: str, limit: Limit | None, now_ms: int) -> Delay:
        """A client has connected to `listener`. `limit` is the quota of its address.

        Over the quota of its address it is closed after the time in which it should not have come, as in Kafka. Over
        the rate of the listener or the broker it is served later. One that is closed is not counted.
        """
        by_address = None if limit is None else self._by_address.of(limit, now_ms)
        if limit is not None and by_address is not None and by_address.tokens(limit.value, now_ms) < 1:
            missing = 1 - by_address.tokens(limit.value, now_ms)
            wait_ms = min(round(missing / limit.value * 1000), self._window_ms)
            self.throttled.add(CONNECTION_CREATION_RATE, limit.identity, wait_ms)
            return Delay(wait_ms, closes=True)
        shared = [self._all]
        if listener in self._shared:
            shared.append(self._shared[listener])
        wait_ms = max(_wait_ms(bucket, rate, now_ms) for bucket, rate in shared)
        if wait_ms > WAIT_MS_MAX:
            return REFUSED
        for bucket, rate in shared:
            bucket.take(1, rate, now_ms)
        if limit is not None and by_address is not None:
            by_address.take(1, limit.value, now_ms)
        return Delay(wait_ms, closes=False) if wait_ms else AT_ONCE


def _wait_ms(bucket: TokenBucket, rate: float, now_ms: int) -> int:
    """How long it takes until there is a token for one more connection."""
    missing = 1 - bucket.tokens(rate, now_ms)
    return round(missing / rate * 1000) if missing > 0 else 0
