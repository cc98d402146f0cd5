"""When each of several repeated tasks is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RETRY_MS: Final = 5_000
"""A task that failed is tried again after this time, or its interval if that is shorter."""


@dataclass(slots=True)
class _Task:
    interval_ms: int | None
    """None: it runs once."""
    due_ms: int | None


class Schedule:
    """Every task is due at the start, then each time that its interval has passed since it began."""

    def __init__(self, intervals_ms: Mapping[str, int | None], now_ms: int) -> None:
        self._tasks = {name: _Task(interval, now_ms) for name, interval in intervals_ms.items()}

    def is_due(self, name: str, now_ms: int) -> bool:
        due = self._tasks[name].due_ms if name in self._tasks else None
        return due is not None and due <= now_ms

    def ran(self, name: str, now_ms: int, *, failed: bool) -> None:
        """`now_ms` is when it began."""
        task = self._tasks[name]
        interval = task.interval_ms
        if failed:
            task.due_ms = now_ms + (RETRY_MS if interval is None else min(RETRY_MS, interval))
        else:
            task.due_ms = None if interval is None else now_ms + interval

    def next_ms(self) -> int | None:
        """When the next task is due; None if none is any more."""
        return min((task.due_ms for task in self._tasks.values() if task.due_ms is not None), default=None)
