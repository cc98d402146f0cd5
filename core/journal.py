"""The recent events of one object, kept in memory, and their readable story for whoever looks into a failure.

Events are fixed words with fields, as in the logs: `journal.note(now_ms, "leader elected", tp=tp, leader_epoch=4)`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

EVENTS_MAX: Final = 500
"""How many events a journal keeps; the oldest is dropped for the next."""


class JournalEvent(NamedTuple):
    """One event, with the monotonic time at which it happened."""

    monotonic_ms: int
    event: str
    fields: dict[str, object]

    def __str__(self) -> str:
        words = [
            f"{self.monotonic_ms:>12} ms  {self.event}",
            *(f"{name}={value}" for name, value in self.fields.items()),
        ]
        return "  ".join(words)


class Journal:
    """A bounded ring of events, oldest first."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[JournalEvent] = deque(maxlen=events_max)

    def __len__(self) -> int:
        return len(self._events)

    def note(self, monotonic_ms: int, event: str, /, **fields: object) -> None:
        self._events.append(JournalEvent(monotonic_ms, event, fields))

    def events(self) -> list[JournalEvent]:
        return list(self._events)

    def story(self) -> str:
        """All events, one per line."""
        return "\n".join(map(str, self._events))
