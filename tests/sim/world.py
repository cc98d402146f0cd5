"""One thread, one clock, one seed: everything that happens in a simulated run happens here, in one order.

Events are functions with a time. Time jumps from one event to the next; two events of the same time happen in the order
in which they were planned. Nothing else moves: no thread, no socket, no real clock.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from uuid import UUID

from raylog.core.clock import Now

WALL_CLOCK_START_MS = 1_700_000_000_000
EVENTS_MAX = 400_000
"""A run that needs more is going round in circles."""


class World:
    """The plan and the random source of one run, and what it has seen (`marks`)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.marks: Counter[str] = Counter()
        """How often something worth knowing happened; a test asserts that it did."""
        self.time_ms = 1000
        self.fingerprint = 0
        """Of all bytes that have arrived anywhere, in their order: two runs that differ, differ here."""
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.events = 0
        """How many there were so far."""

    def now(self) -> Now:
        """The time as clients see it; a host has clocks of its own."""
        return Now(self.time_ms, WALL_CLOCK_START_MS + self.time_ms)

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (self.time_ms + max(0, delay_ms), self._sequence, event))
        self._sequence += 1

    def run(self, *, until: Callable[[], bool], limit_ms: int) -> bool:
        """Let things happen until `until` holds (True), or time is up or nothing is left to happen (False)."""
        end_ms = self.time_ms + limit_ms
        while not until():
            if not self._planned or self._planned[0][0] > end_ms:
                self.time_ms = end_ms
                return False
            self.time_ms, _, event = heapq.heappop(self._planned)
            self.events += 1
            assert self.events <= EVENTS_MAX, "the run does not come to an end"
            event()
        return True

    def new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128) | 1 << 127)
