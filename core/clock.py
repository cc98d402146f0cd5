"""Time as a value. Pure code is told the time; only shells look at a clock.

Two clocks, because they answer two questions: a deadline must survive a wall clock that jumps, and a record's
timestamp must mean something to a person.
"""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """One reading of both clocks, in milliseconds."""

    monotonic_ms: int
    """Never goes back; its zero means nothing. For deadlines and elapsed time."""
    wall_ms: int
    """Since 1970-01-01 UTC; may jump. For timestamps in records and retention only."""
