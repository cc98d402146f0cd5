"""The event loop of a simulated run: one thread, one clock, one seed, and one order of all events.

Events are functions with a time. Time jumps from one event to the next; events of the same time run in the order in
which they were scheduled. There are no threads, sockets or real clocks.
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
"""A run that needs more events is in an endless loop."""


class World:
    """The schedule and the random source of one run, and the cases it has met (`marks`)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.marks: Counter[str] = Counter()
        """How often notable cases occurred; tests assert that they did."""
        self.time_ms = 1000
        self.fingerprint = 0
        """Hash of all received bytes in order: runs that differ have different fingerprints."""
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.events = 0
        """The number of events so far."""

    def now(self) -> Now:
        """The time as clients see it; a host has clocks of its own."""
        return Now(self.time_ms, WALL_CLOCK_START_MS + self.time_ms)

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (self.time_ms + max(0, delay_ms), self._sequence, event))
        self._sequence += 1

    def run(self, *, until: Callable[[], bool], limit_ms: int) -> bool:
        """Run events until `until` holds (True), or the time limit is reached or no event is left (False)."""
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
