"""Requests by API and version: how many, and how long each phase took. Recorded once, when one is complete.

Phases as in Kafka's RequestMetrics: the request queue is the wait for the connection's turn; local is the time in the
handler; remote is the wait for commits, data or another node; throttle is how long the client is muted afterwards.

All requests are counted, none sampled: most of them take the same few tenths of a millisecond in each phase, so the
distribution of the last minutes fits into a small dictionary. That costs less than a reservoir, and is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from raylog.protocol.registry import FETCH, api_for

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange

WINDOW_MS: Final = 60_000
"""Percentiles cover at least this much of the past, and at most twice as much, while they are read."""
DISTINCT_MAX: Final = 10_000
"""With so many different requests in one window, the next one begins."""
EXACT_BELOW: Final = 100
"""Longer durations, in tenths of a millisecond, are kept with two digits."""
NS_PER_TENTH: Final = 100_000


class Seen(NamedTuple):
    """Requests that took equally long. Durations are tenths of a millisecond."""

    api_key: int
    version: int
    internal: bool
    """Whether it is the Fetch of a node of the cluster."""
    queue: int
    local: int
    remote: int
    throttle: int

    @property
    def total(self) -> int:
        return self.queue + self.local + self.remote

    @property
    def name(self) -> str:
        """Of the API, as in Kafka's metrics."""
        if self.api_key == FETCH:
            return "FetchFollower" if self.internal else "FetchConsumer"
        spec = api_for(self.api_key)
        assert spec is not None
        return spec.name


Key = int | tuple[int, int, bool, int, int, int, int]
"""The fields of `Seen`; packed into one number for most requests, which have waited for nothing and were quick."""
_TIME_BITS: Final = 7
"""Bits of a duration below EXACT_BELOW."""
_VERSION_BITS: Final = 16


class RequestTimes:
    """What is recorded is added up when it is read, or when there is too much of it."""

    def __init__(self) -> None:
        self._recent: dict[Key, int] = {}
        """How many requests were like this."""
        self._previous: dict[Key, int] = {}
        self._ended: Counter[tuple[str, int]] = Counter()
        """The requests of former windows, by API and version."""
        self._window_began_ms = 0

    def record(self, exchange: Exchange, ended_ns: int) -> None:
        """The response is encoded at this time of the clock that the exchange was begun with."""
        total = (ended_ns - exchange.began_ns) // NS_PER_TENTH
        local = exchange.local_ns
        local = total if local < 0 else local // NS_PER_TENTH
        api_key = exchange.spec.key
        internal = api_key == FETCH and exchange.internal
        seen: Key
        if total < EXACT_BELOW and not exchange.queue_ms and not exchange.throttle_ms:
            of = (api_key << _VERSION_BITS | exchange.api_version) << 1 | internal
            seen = (of << _TIME_BITS | total) << _TIME_BITS | local
        else:
            queue, throttle = _rounded(10 * exchange.queue_ms), _rounded(10 * exchange.throttle_ms)
            times = (queue, _rounded(local), _rounded(total - local), throttle)
            seen = (api_key, exchange.api_version, internal, *times)
        try:
            self._recent[seen] += 1
        except KeyError:
            if len(self._recent) >= DISTINCT_MAX:
                self._next_window()
            self._recent[seen] = 1

    def begin_window(self, now_ms: int) -> None:
        """To be called before percentiles are read: forgets what is too old."""
        if now_ms - self._window_began_ms >= WINDOW_MS:
            self._window_began_ms = now_ms
            self._next_window()

    def requests(self) -> Counter[tuple[str, int]]:
        """By API and version. A Fetch is one of FetchConsumer and FetchFollower."""
        found = self._ended.copy()
        for window in (self._previous, self._recent):
            _add(window, found)
        return found

    def durations_ms(self, of: Callable[[Seen], int]) -> Iterator[tuple[str, Counter[float]]]:
        """(API, how often each duration of a phase occurred lately), in milliseconds."""
        found: dict[str, Counter[float]] = {}
        for window in (self._previous, self._recent):
            for key, requests in window.items():
                seen = _seen(key)
                for name in names_of(seen.name):
                    found.setdefault(name, Counter())[of(seen) / 10] += requests
        yield from found.items()

    def _next_window(self) -> None:
        _add(self._previous, self._ended)
        self._previous, self._recent = self._recent, {}


def names_of(name: str) -> tuple[str, ...]:
    """Under which names a request of this API is shown."""
    return (name, "Fetch") if name in ("FetchConsumer", "FetchFollower") else (name,)


def _add(window: Mapping[Key, int], to: Counter[tuple[str, int]]) -> None:
    for key, requests in window.items():
        seen = _seen(key)
        to[seen.name, seen.version] += requests


def _seen(key: Key) -> Seen:
    if not isinstance(key, int):
        return Seen(*key)
    mask = (1 << _TIME_BITS) - 1
    times, of = key & (1 << 2 * _TIME_BITS) - 1, key >> 2 * _TIME_BITS
    total, local = times >> _TIME_BITS, times & mask
    version = of >> 1 & (1 << _VERSION_BITS) - 1
    return Seen(of >> 1 + _VERSION_BITS, version, bool(of & 1), 0, local, total - local, 0)


def _rounded(tenths: int) -> int:
    """The duration with two digits, rounded down."""
    unit = 1
    while tenths // unit >= EXACT_BELOW:
        unit *= 10
    return tenths // unit * unit
