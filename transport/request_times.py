"""Requests by API and version: how many, how large, and how long each phase took. Recorded once, when one is complete.

Phases as in Kafka's RequestMetrics: the request queue is the wait for the connection's turn; local is the time in the
handler; remote is the wait for commits, data or another node; throttle is how long the client is muted afterwards.

All requests are counted, none sampled: most of them take the same few tenths of a millisecond in each phase, so the
distribution of the last minutes fits into a small dictionary. That costs less than a reservoir, and is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from raylog.protocol.registry import FETCH

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange

WINDOW_MS: Final = 60_000
"""Percentiles cover at least this much of the past, and at most twice as much, while they are read."""
DISTINCT_MAX: Final = 1000
"""With so many different durations in one window, the next one begins."""
EXACT_BELOW: Final = 100
"""Longer durations, in tenths of a millisecond, are kept with two digits."""
NS_PER_TENTH: Final = 100_000


class Phases(NamedTuple):
    """Durations of one request in tenths of a millisecond."""

    queue: int
    local: int
    remote: int
    throttle: int
    total: int


@dataclass(slots=True)
class ApiTimes:
    """All requests of one API in one version since the node started."""

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    recent: dict[tuple[int, int, int, int, int], int] = field(default_factory=dict)
    """How many requests had these `Phases`, in the current window."""
    previous: dict[tuple[int, int, int, int, int], int] = field(default_factory=dict)
    """The same in the window before it."""


class RequestTimes:
    """By the name of the API, as in Kafka's metrics, and the version."""

    def __init__(self) -> None:
        self.by_api: dict[tuple[str, int], ApiTimes] = {}
        self._window_began_ms = 0

    def record(self, exchange: Exchange, ended_ns: int) -> None:
        """The response is encoded at this time of the clock that the exchange was begun with."""
        name = exchange.spec.name
        if exchange.spec.key == FETCH:
            name = "FetchFollower" if exchange.internal else "FetchConsumer"
        times = self.by_api.get((name, exchange.api_version))
        if times is None:
            times = self.by_api[name, exchange.api_version] = ApiTimes()
        times.requests += 1
        times.bytes_in += exchange.size_bytes
        times.bytes_out += exchange.output_bytes
        total = (ended_ns - exchange.began_ns) // NS_PER_TENTH
        local = total if exchange.local_ns < 0 else exchange.local_ns // NS_PER_TENTH
        queue, throttle = exchange.queue_ms * 10, exchange.throttle_ms * 10
        if total >= EXACT_BELOW or queue >= EXACT_BELOW or throttle >= EXACT_BELOW:
            total, local, queue, throttle = _rounded(total), _rounded(local), _rounded(queue), _rounded(throttle)
        phases = (queue, local, total - local, throttle, queue + total)
        recent = times.recent
        recent[phases] = recent.get(phases, 0) + 1
        if len(recent) > DISTINCT_MAX:
            times.previous, times.recent = recent, {}

    def begin_window(self, now_ms: int) -> None:
        """To be called before percentiles are read: forgets what is too old."""
        if now_ms - self._window_began_ms < WINDOW_MS:
            return
        self._window_began_ms = now_ms
        for times in self.by_api.values():
            times.previous, times.recent = times.recent, {}

    def requests(self) -> Iterator[tuple[str, ApiTimes]]:
        """(API, its times) for each version; a Fetch is also counted as one of any kind."""
        for (name, _), times in self.by_api.items():
            yield name, times
            if name in ("FetchConsumer", "FetchFollower"):
                yield "Fetch", times

    def durations_ms(self, of: Callable[[Phases], int]) -> Iterator[tuple[str, Counter[float]]]:
        """(API, how often each duration of a phase occurred lately), in milliseconds."""
        found: dict[str, Counter[float]] = {}
        for name, times in self.requests():
            counts = found.setdefault(name, Counter())
            for window in (times.previous, times.recent):
                for phases, count in window.items():
                    counts[of(Phases(*phases)) / 10] += count
        yield from found.items()


def _rounded(tenths: int) -> int:
    """The duration with two digits, rounded down."""
    unit = 1
    while tenths // unit >= EXACT_BELOW:
        unit *= 10
    return tenths // unit * unit
