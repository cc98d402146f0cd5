"""Holds the copying of replicas that are not in sync to a rate, so that others can use disk and network (KIP-73).

Pure: told of bytes and of the time. Which replicas are meant, their topic says: `*` for all of them, else
`partition:broker`. Replicas in sync are never held back, nor are their bytes counted: a rate bounds what catches up.
"""

from __future__ import annotations

from collections.abc import Collection

from raylog.core.ids import BrokerId

ALL_REPLICAS = "*"
BURST_MS = 1000
"""What was not used of the rate is kept for so long: whoever is held back asks again a moment too late."""
LOOK_AGAIN_MS = 1000
"""At a rate of nothing, which may be another one by then."""


def is_throttled(listed: Collection[str], partition: int, broker_id: BrokerId) -> bool:
    """Whether a topic's list of throttled replicas has this one."""
    return ALL_REPLICAS in listed or f"{partition}:{broker_id}" in listed


class ReplicationThrottle:
    """What one broker sends to those that catch up, or what it fetches to catch up: a bucket of bytes, filled in time.

    A whole answer is let through as soon as there is anything in the bucket; what it takes too much of is waited for.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._used_until_ms = now_ms - BURST_MS
        self._debt = 0
        """Bytes that were taken too much, negative for what is left; times 1000, so that it can be told per ms."""

    def used(self, size_bytes: int, *, rate_bytes_per_sec: int, now_ms: int) -> None:
        self._settle(rate_bytes_per_sec, now_ms)
        self._debt += 1000 * size_bytes

    def free_ms(self, *, rate_bytes_per_sec: int, now_ms: int) -> int:
        """From when on more may be copied; `now_ms` for at once."""
        self._settle(rate_bytes_per_sec, now_ms)
        if self._debt < 0:
            return now_ms
        if rate_bytes_per_sec == 0:
            return now_ms + LOOK_AGAIN_MS
        return now_ms + self._debt // rate_bytes_per_sec + 1

    def _settle(self, rate_bytes_per_sec: int, now_ms: int) -> None:
        """`now_ms` may have gone by: a request that was parked tells when it came."""
        elapsed_ms = max(now_ms - self._used_until_ms, 0)
        self._debt = max(self._debt - rate_bytes_per_sec * elapsed_ms, -rate_bytes_per_sec * BURST_MS)
        self._used_until_ms += elapsed_ms
