"""Holds the copying of replicas that are not in sync to a rate, so that others can use disk and network (KIP-73).

Pure: told of bytes and of the time. Which replicas are meant, their topic says: `*` for all of them, else
`partition:broker`. Replicas in sync are never held back, nor are their bytes counted: a rate bounds what catches up.
"""

from __future__ import annotations

from collections.abc import Collection

from raylog.core.ids import BrokerId

ALL_REPLICAS = "*"
BURST_MS = 1000
"""Unused rate is kept for this long, since a throttled replica retries a moment after it may."""
LOOK_AGAIN_MS = 1000
"""When to retry at a rate of 0, since the rate may be changed."""


def is_throttled(listed: Collection[str], partition: int, broker_id: BrokerId) -> bool:
    """Whether a topic's list of throttled replicas contains this one."""
    return ALL_REPLICAS in listed or f"{partition}:{broker_id}" in listed


class ReplicationThrottle:
    """A token bucket for the bytes that one broker sends to replicas that are not in sync, or fetches for its own.

    A whole answer is let through as soon as there is anything in the bucket; what it takes too much of is waited for.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._used_until_ms = now_ms - BURST_MS
        self._debt = 0
        """Bytes taken beyond the rate, negative for unused ones; times 1000, to count per millisecond."""

    def used(self, size_bytes: int, *, rate_bytes_per_sec: int, now_ms: int) -> None:
        self._settle(rate_bytes_per_sec, now_ms)
        self._debt += 1000 * size_bytes

    def free_ms(self, *, rate_bytes_per_sec: int, now_ms: int) -> int:
        """The time from which more may be copied; `now_ms` if that is now."""
        self._settle(rate_bytes_per_sec, now_ms)
        if self._debt < 0:
            return now_ms
        if rate_bytes_per_sec == 0:
            return now_ms + LOOK_AGAIN_MS
        return now_ms + self._debt // rate_bytes_per_sec + 1

    def _settle(self, rate_bytes_per_sec: int, now_ms: int) -> None:
        """`now_ms` may be in the past: that of a delayed request is its arrival."""
        elapsed_ms = max(now_ms - self._used_until_ms, 0)
        self._debt = max(self._debt - rate_bytes_per_sec * elapsed_ms, -rate_bytes_per_sec * BURST_MS)
        self._used_until_ms += elapsed_ms
