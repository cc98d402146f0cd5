"""The recent events of one object, kept in memory and printed as text, for analysing a failure.

Events are fixed words with fields, as in the logs: `journal.note(now, "partition led", tp=tp, leader_epoch=4)`.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Final, NamedTuple

from raylog.core.clock import Now

EVENTS_MAX: Final = 500
"""How many events a journal keeps; the oldest is dropped for the next."""


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
    """A bounded ring of events, oldest first."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[JournalEvent] = deque(maxlen=events_max)

    def note(self, now: Now, event: str, /, **fields: object) -> None:
        self._events.append(JournalEvent(now.wall_ms, event, {name: str(value) for name, value in fields.items()}))

    def events(self) -> list[JournalEvent]:
        return list(self._events)

    def story(self) -> str:
        """All events, one per line."""
        return "\n".join(map(str, self._events))
