"""Limits the replication rate of replicas that are not in sync, to leave disk and network to others (KIP-73).

Pure: the caller passes byte counts and the time. The topic lists the throttled replicas: `*` for all, else
`partition:broker`. In-sync replicas are never throttled and their bytes are not counted: the rate limits only replicas
that catch up.
"""

from __future__ import annotations

from collections.abc import Collection

from raylog.core.ids import BrokerId

ALL_REPLICAS = "*"
BURST_MS = 1000
"""Unused rate accumulates for this long, since a throttled replica retries slightly later than it may."""
RETRY_MS = 1000
"""Retry interval at a rate of 0, since the rate may be changed."""


def is_throttled(listed: Collection[str], partition: int, broker_id: BrokerId) -> bool:
    """Whether a topic's list of throttled replicas contains this one."""
    return ALL_REPLICAS in listed or f"{partition}:{broker_id}" in listed


class ReplicationThrottle:
    """A token bucket for the bytes that one broker sends to, or fetches as, replicas that are not in sync.

    A whole response passes as soon as the bucket is not empty; the next one waits until the excess is paid back.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._used_until_ms = now_ms - BURST_MS
        self._debt = 0
        """Bytes beyond the rate, negative for unused ones; times 1000, to count per millisecond."""

    def used(self, size_bytes: int, *, rate_bytes_per_sec: int, now_ms: int) -> None:
        self._settle(rate_bytes_per_sec, now_ms)
        self._debt += 1000 * size_bytes

    def free_ms(self, *, rate_bytes_per_sec: int, now_ms: int) -> int:
        """The time from which replication may continue; `now_ms` if that is now."""
        self._settle(rate_bytes_per_sec, now_ms)
        if self._debt < 0:
            return now_ms
        if rate_bytes_per_sec == 0:
            return now_ms + RETRY_MS
        return now_ms + self._debt // rate_bytes_per_sec + 1

    def _settle(self, rate_bytes_per_sec: int, now_ms: int) -> None:
        """`now_ms` may lie in the past: for a delayed request it is the arrival time."""
        elapsed_ms = max(now_ms - self._used_until_ms, 0)
        self._debt = max(self._debt - rate_bytes_per_sec * elapsed_ms, -rate_bytes_per_sec * BURST_MS)
        self._used_until_ms += elapsed_ms
