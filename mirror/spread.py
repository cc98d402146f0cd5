"""How a figure was spread over the last while: last, least, greatest and mean, in little memory. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

BUCKETS: Final = 30


@dataclass(frozen=True, slots=True)
class Spread:
    last: int
    least: int
    greatest: int
    mean: float


@dataclass(slots=True)
class _Bucket:
    begins_ms: int
    least: int
    greatest: int
    total: int
    count: int


class SpreadWindow:
    """What was seen in the last `window_ms`, to a thirtieth of it; the last value is kept for ever."""

    __slots__ = ("_buckets", "_last", "_width_ms", "_window_ms")

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._width_ms = window_ms // BUCKETS
        self._buckets: deque[_Bucket] = deque()
        self._last: int | None = None

    def add(self, value: int, count: int, now_ms: int) -> None:
        """`count` times, at this time, which does not step back."""
        self._last = value
        self._forget(now_ms)
        if self._buckets and now_ms < self._buckets[-1].begins_ms + self._width_ms:
            bucket = self._buckets[-1]
            bucket.least, bucket.greatest = min(bucket.least, value), max(bucket.greatest, value)
            bucket.total += value * count
            bucket.count += count
        else:
            self._buckets.append(_Bucket(now_ms, value, value, value * count, count))

    def read(self, now_ms: int) -> Spread | None:
        """None if nothing was seen; the last value alone if nothing was seen lately."""
        if self._last is None:
            return None
        self._forget(now_ms)
        if not self._buckets:
            return Spread(self._last, self._last, self._last, self._last)
        return Spread(
            self._last,
            min(bucket.least for bucket in self._buckets),
            max(bucket.greatest for bucket in self._buckets),
            sum(bucket.total for bucket in self._buckets) / sum(bucket.count for bucket in self._buckets),
        )

    def _forget(self, now_ms: int) -> None:
        while self._buckets and self._buckets[0].begins_ms <= now_ms - self._window_ms:
            self._buckets.popleft()
