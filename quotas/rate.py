"""A rate over a sliding window of samples, as Kafka measures quotas.

Source: Kafka's `Rate` and `SampledStat`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

THROTTLE_MS_MAX = (1 << 31) - 1
"""What a response can carry."""


class Sampling(NamedTuple):
    """How a rate is measured: over this many samples, each of this length."""

    samples: int
    window_ms: int

    @property
    def span_ms(self) -> int:
        """An event that is older does not count."""
        return self.samples * self.window_ms


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class SampledRate:
    """Events per second. The rate is the sum of all samples, divided by the time since the oldest one began.

    That time is at least `samples - 1` windows, as if there had been samples without events before the first one.
    """

    __slots__ = ("_samples", "_sampling")

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`, which is negative to take back what was recorded before."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sampling.window_ms:
            self._forget_old(now_ms)
            samples.append(_Sample(now_ms, now_ms))
        samples[-1].value += value
        samples[-1].last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        window_ms = self.elapsed_ms(now_ms)
        total = sum(sample.value for sample in self._samples)
        return total * 1000 / window_ms if window_ms else (float("inf") if total > 0 else 0.0)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time over which the rate is measured."""
        self._forget_old(now_ms)
        samples, (count, window_ms) = self._samples, self._sampling
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = count - 1 - elapsed_ms // window_ms
        return elapsed_ms + max(missing, 0) * window_ms

    def is_like_new(self, now_ms: int) -> bool:
        self._forget_old(now_ms)
        return not self._samples

    def _forget_old(self, now_ms: int) -> None:
        samples, span_ms = self._samples, self._sampling.span_ms
        while samples and now_ms - samples[0].last_ms >= span_ms:
            samples.popleft()

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long it takes without events until the rate is down to `bound`; 0 if it is not above.

        With the observed rate O over a window W, it solves O * W / (W + X) = bound for X.
        """
        observed = self.per_second(now_ms)
        if observed <= bound:
            return 0
        if observed == float("inf"):
            return self._sampling.window_ms
        return min(round((observed - bound) / bound * self.elapsed_ms(now_ms)), THROTTLE_MS_MAX)
