"""(shell) The clocks of this machine."""

from __future__ import annotations

from time import monotonic_ns, time_ns

from raylog.core.clock import Now


def now() -> Now:
    return Now(monotonic_ns() // 1_000_000, time_ns() // 1_000_000)
