"""How much the clients of one node use of their quotas, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from raylog.quotas.client_quotas import Identity, Limit, QuotaEntity

METERS_MAX: Final = 10_000
"""Identities that are measured at once for one quota. Further ones share one measurement for each configured entity."""
EXPIRED_AT_ONCE: Final = 2
"""How many idle identities are forgotten when a new one appears: more than one, so that the number falls."""
THROTTLED_MAX: Final = 1000
"""Identities of which the throttled time is kept: those throttled last."""


class _Meter(Protocol):
    """Measures what one identity uses."""

    def is_like_new(self, now_ms: int) -> bool:
        """Whether a new one would measure the same from now on: nothing counts any longer, and nothing is owed."""


Meter = TypeVar("Meter", bound=_Meter)


@dataclass(slots=True)
class _Used(Generic[Meter]):
    meter: Meter
    last_ms: int


class Meters(Generic[Meter]):
    """One meter for each identity that has used its quota recently.

    After `span_ms` without use a meter that is as good as a new one is forgotten. One that is not, because its
    identity has used the quota of a longer time at once, is kept for another `span_ms`.
    """

    def __init__(self, new: Callable[[], Meter], *, span_ms: int, meters_max: int = METERS_MAX) -> None:
        self._new = new
        self._span_ms = span_ms
        self._meters_max = meters_max
        self._used: OrderedDict[Identity | QuotaEntity, _Used[Meter]] = OrderedDict()
        """The least recently used one first."""

    def __len__(self) -> int:
        return len(self._used)

    def of(self, limit: Limit, now_ms: int) -> Meter:
        """The meter of the clients that share this quota; it is used now."""
        used = self._used.get(limit.identity)
        if used is None:
            key: Identity | QuotaEntity = limit.identity
            self._expire(now_ms)
            if len(self._used) >= self._meters_max:
                key = limit.rule  # a stranger with many client ids gains nothing, and displaces no other client
                used = self._used.get(key)
            if used is None:
                used = self._used[key] = _Used(self._new(), now_ms)
            self._used.move_to_end(key)
        else:
            self._used.move_to_end(limit.identity)
        used.last_ms = now_ms
        return used.meter

    def _expire(self, now_ms: int) -> None:
        for _ in range(EXPIRED_AT_ONCE):
            oldest = next(iter(self._used.items()), None)
            if oldest is None or now_ms - oldest[1].last_ms < self._span_ms:
                return
            key, used = oldest
            if used.meter.is_like_new(now_ms):
                del self._used[key]
            else:
                used.last_ms = now_ms
                self._used.move_to_end(key)


class Throttled(NamedTuple):
    """The throttled time of the clients that share a quota, since the node started."""

    key: str
    identity: Identity
    times: int
    total_ms: int


class ThrottledTime:
    """The identities that were throttled, and for how long."""

    def __init__(self, *, identities_max: int = THROTTLED_MAX) -> None:
        self._identities_max = identities_max
        self._sums: OrderedDict[tuple[str, Identity], tuple[int, int]] = OrderedDict()
        """The least recently throttled one first."""

    def add(self, key: str, identity: Identity, throttle_ms: int) -> None:
        times, total_ms = self._sums.get((key, identity), (0, 0))
        self._sums[key, identity] = (times + 1, total_ms + throttle_ms)
        self._sums.move_to_end((key, identity))
        if len(self._sums) > self._identities_max:
            self._sums.popitem(last=False)

    def all(self) -> list[Throttled]:
        """In the order of the keys and identities."""
        found = [Throttled(*of, *sums) for of, sums in self._sums.items()]
        return sorted(found, key=lambda each: (each.key, each.identity.user or "", each.identity.client_id or ""))
