"""Measurements over time for the plots of the page. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Generic, NamedTuple, TypeVar

POINTS_MAX: Final = 600
DUTY: Final = 10
"""What is measured takes at most about one tenth of the time."""
PAUSE_MS_MIN: Final = 2_000
T = TypeVar("T")


class Point(NamedTuple):
    """`time_ms` is wall clock."""

    time_ms: int
    values: tuple[float, ...]


class Series:
    """The last points, oldest first."""

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self.points: deque[Point] = deque(maxlen=points_max)

    def add(self, time_ms: int, *values: float) -> None:
        """Ignored unless it is later than the last one: two tabs may measure at once."""
        if not self.points or time_ms > self.points[-1].time_ms:
            self.points.append(Point(time_ms, values))

    def shown(self) -> list[list[float]]:
        return [[point.time_ms, *point.values] for point in self.points]


class Bounded(Generic[T]):
    """Values by name; the one that was not used for longest is dropped where there are too many."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._by_name: OrderedDict[str, T] = OrderedDict()

    def get(self, name: str) -> T | None:
        if name in self._by_name:
            self._by_name.move_to_end(name)
        return self._by_name.get(name)

    def put(self, name: str, value: T) -> T:
        self._by_name[name] = value
        self._by_name.move_to_end(name)
        while len(self._by_name) > self._count_max:
            self._by_name.popitem(last=False)
        return value


def pause_ms(took_ms: float) -> int:
    """How long the page waits before it measures again, when this measurement took so long."""
    return max(PAUSE_MS_MIN, int(DUTY * took_ms))
