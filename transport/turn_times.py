"""How long the event loop of a node was held by single events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

SLOW_TURN_NS: Final = 50_000_000


@dataclass(slots=True)
class TurnTimes:
    """How long single turns of the loop took: the delay that a heartbeat may see."""

    longest_ns: int = 0
    longest: str = ""
    """The name of the event that took so long."""
    slow: int = 0
    """How many took more than 50 ms."""
    slow_ever: int = 0
    """The same since the node started."""
    busy_ns: int = 0
    """The sum of all turns since the node started."""

    @property
    def notable_ns(self) -> int:
        """Turns up to this long need not be recorded."""
        return min(self.longest_ns, SLOW_TURN_NS)

    def record(self, took_ns: int, event: Callable[[], None]) -> None:
        if took_ns > self.longest_ns:
            self.longest_ns, self.longest = took_ns, name_of(event)
        if took_ns > SLOW_TURN_NS:
            self.slow += 1
            self.slow_ever += 1

    def take(self) -> TurnTimes:
        """A copy; the longest turn and the number of slow ones begin anew."""
        taken = replace(self)
        self.longest_ns, self.longest, self.slow = 0, "", 0
        return taken


def name_of(event: Callable[[], None]) -> str:
    function = event.func if isinstance(event, partial) else event
    return getattr(function, "__name__", repr(function))
