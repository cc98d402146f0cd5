"""Delayed operations: requests that wait for data, for a time, or for the first of both.

Kafka calls this the purgatory. An operation is watched under the keys of the partitions that may complete it; an event
on one of them tries to complete it, its deadline completes it by force, and a closed connection drops it.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from typing import Protocol


class DelayedOperation(Protocol):
    """`try_complete` responds if it can and returns whether it did; `complete` responds with what is available."""

    deadline_ms: int

    def try_complete(self, grown_bytes: int) -> bool: ...

    def complete(self) -> None: ...


class DelayedOperations:
    """All delayed operations of this broker. Each ends exactly once: completed, expired or dropped."""

    def __init__(self) -> None:
        self._watchers: dict[Hashable, dict[int, DelayedOperation]] = {}
        self._waiting: dict[int, tuple[DelayedOperation, tuple[Hashable, ...]]] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._trying: set[int] = set()
        """Operations that see what is available just now: what they cause themselves is no news to them."""
        self._next_ticket = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> int:
        """Delay `operation`; the returned ticket identifies it for `drop`. A key may be repeated, as in a request."""
        ticket = self._next_ticket
        self._next_ticket += 1
        watched = tuple(dict.fromkeys(keys))
        self._waiting[ticket] = (operation, watched)
        for key in watched:
            self._watchers.setdefault(key, {})[ticket] = operation
        heapq.heappush(self._deadlines, (operation.deadline_ms, ticket))
        return ticket

    def grown(self, key: Hashable, grown_bytes: int) -> None:
        """`key` has grown by `grown_bytes` (0: it changed otherwise); try to complete the operations that watch it."""
        watchers = self._watchers.get(key)
        if watchers:
            for ticket, operation in list(watchers.items()):
                if ticket in self._waiting and ticket not in self._trying and self._try(ticket, operation, grown_bytes):
                    self.drop(ticket)

    def _try(self, ticket: int, operation: DelayedOperation, grown_bytes: int) -> bool:
        self._trying.add(ticket)
        try:
            return operation.try_complete(grown_bytes)
        finally:
            self._trying.discard(ticket)

    def expire(self, monotonic_ms: int) -> None:
        """Complete every operation whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= monotonic_ms:
            _, ticket = heapq.heappop(self._deadlines)
            entry = self._waiting.get(ticket)
            if entry is not None:
                self.drop(ticket)
                entry[0].complete()

    def drop(self, ticket: int) -> None:
        """Remove it without a response. Dropping an operation that has ended is allowed."""
        entry = self._waiting.pop(ticket, None)
        if entry is None:
            return
        for key in entry[1]:
            watchers = self._watchers[key]
            del watchers[ticket]
            if not watchers:
                del self._watchers[key]
        if len(self._deadlines) > 64 and len(self._deadlines) > 4 * len(self._waiting):
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._waiting]
            heapq.heapify(self._deadlines)

    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `expire` has work to do."""
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
