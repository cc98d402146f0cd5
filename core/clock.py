"""Time as a value. Pure code receives the time as an argument; only shells read a clock.

There are two clocks: deadlines must not depend on a wall clock that can jump, and the timestamps of records must be
meaningful outside the process.
"""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """One reading of both clocks, in milliseconds."""

    monotonic_ms: int
    """Never decreases; its zero is arbitrary. For deadlines and elapsed time."""
    wall_ms: int
    """Since 1970-01-01 UTC; may jump. Only for timestamps of records, and for retention."""
