"""Whether a worker that has died is started again, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from raylog.client.backoff import backoff_ms

DEATHS_MAX: Final = 10
"""A worker that dies this often in a row without committing anything is given up, and the pool with it."""
RESTART_BACKOFF_MS: Final = 100
RESTART_BACKOFF_MAX_MS: Final = 10_000


@dataclass(slots=True)
class WorkerLife:
    """One worker, over all its actors."""

    jitter: Callable[[], float]
    restarts: int = 0
    _deaths: int = 0
    """Since it has committed something."""
    _failed_starts: int = 0
    """Since then, while its cluster was not available."""

    def committed(self) -> None:
        """It makes progress."""
        self._deaths = self._failed_starts = 0

    def died(self) -> int | None:
        """The pause in milliseconds before it is started again; None if it is given up."""
        self._deaths += 1
        if self._deaths > DEATHS_MAX:
            return None
        self.restarts += 1
        return backoff_ms(self._deaths, RESTART_BACKOFF_MS, RESTART_BACKOFF_MAX_MS, self.jitter)

    def not_started(self) -> int:
        """The pause in milliseconds before it is started again. Its cluster is not available: it is not given up."""
        self._failed_starts += 1
        self.restarts += 1
        return backoff_ms(self._failed_starts, RESTART_BACKOFF_MS, RESTART_BACKOFF_MAX_MS, self.jitter)
