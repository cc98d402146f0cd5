"""The recent events of one object, kept in memory and printed as text, for analysing a failure.

Events are fixed words with fields, as in the logs: `journal.note(now, "partition led", tp=tp, leader_epoch=4)`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from raylog.core.clock import Now

EVENTS_MAX: Final = 100
"""How many events of the same kind a journal keeps; the oldest is dropped for the next."""


class JournalEvent(NamedTuple):
    """One event, and when it happened, since 1970-01-01 UTC."""

    wall_ms: int
    event: str
    fields: dict[str, str]

    def __str__(self) -> str:
        time = datetime.fromtimestamp(self.wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
        fields = (f"{name}={value}" for name, value in self.fields.items())
        return " ".join([time.replace("+00:00", "Z"), self.event, *fields])


class Journal:
    """A bounded ring for each kind of event: frequent ones, which a peer may cause at will, do not displace others."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._noted = 0
        self._rings: defaultdict[str, deque[tuple[int, JournalEvent]]] = defaultdict(partial(deque, maxlen=events_max))
        """By kind: events, with their number in the order of all events."""

    def note(self, now: Now, event: str, /, **fields: object) -> None:
        self._noted += 1
        texts = {name: str(value) for name, value in fields.items()}
        self._rings[event].append((self._noted, JournalEvent(now.wall_ms, event, texts)))

    def events(self) -> list[JournalEvent]:
        """All events, oldest first."""
        return [event for _, event in heapq.merge(*self._rings.values())]

    def story(self) -> str:
        """All events, one per line."""
        return "\n".join(map(str, self.events()))
