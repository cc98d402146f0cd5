"""Requests that wait until the records they appended or may reveal are committed: one queue per log, by offset.

A slow log delays only the requests that depend on it. Each wait ends once: by the commit, by its deadline, or because
the leadership under which its records were appended is lost.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, Protocol

from raylog.core.errors import ErrorCode

Codes = list[ErrorCode]
COMMITTED: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""The codes of a committed point; the second one if fewer replicas than min.insync.replicas have it."""


class CommitPoint(NamedTuple):
    """The end of a log: everything below `end_offset` has to be committed."""

    log: Hashable
    end_offset: int


class CommitSource(Protocol):
    """A log on which responses may depend."""

    def commit_point(self) -> CommitPoint | None:
        """The current end of the log; None if all of it is committed."""


class _Wait:
    """One request that waits for one or several points."""

    __slots__ = ("codes", "done", "ended", "remaining")

    def __init__(self, count: int, done: Callable[[Codes], None]) -> None:
        self.codes: list[ErrorCode | None] = [None] * count
        self.remaining = count
        self.done = done
        self.ended = False

    def settle(self, index: int, code: ErrorCode) -> None:
        self.codes[index] = code
        self.remaining -= 1
        if not self.remaining:
            self.end(code)

    def end(self, code: ErrorCode) -> None:
        """Set `code` for every point that is not settled."""
        self.ended = True
        self.done([code if known is None else known for known in self.codes])


class CommitQueues:
    """The requests of one node that wait for commits."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[tuple[int, _Wait, int]]] = {}
        """By log: end offset, wait, and the index of the point in it. Offsets never decrease."""
        self._deadlines: list[tuple[int, int, _Wait]] = []
        self._sequence = 0
        self._waiting = 0

    def __len__(self) -> int:
        """The number of waiting requests."""
        return self._waiting

    @property
    def logs(self) -> list[Hashable]:
        """The logs that requests wait for."""
        return list(self._queues)

    def wait(self, points: Sequence[CommitPoint], *, deadline_ms: int | None, done: Callable[[Codes], None]) -> None:
        """Call `done` once, with a code for each point.

        The code is NONE if the point was committed, the code passed to `lost`, or REQUEST_TIMED_OUT after
        `deadline_ms` (monotonic).
        """

        def ended(codes: Codes) -> None:
            self._waiting -= 1
            done(codes)

        wait = _Wait(len(points), ended)
        self._waiting += 1
        for index, (log, end_offset) in enumerate(points):
            queue = self._queues.setdefault(log, deque())
            if queue and queue[-1][0] > end_offset:
                queue.append((end_offset, wait, index))
                self._queues[log] = deque(sorted(queue, key=lambda entry: entry[0]))
            else:
                queue.append((end_offset, wait, index))
        if deadline_ms is not None:
            self._sequence += 1
            heapq.heappush(self._deadlines, (deadline_ms, self._sequence, wait))
            self._forget_old_deadlines()

    def committed(self, log: Hashable, upto: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Everything in `log` below `upto` is committed; `code` is set for the completed points."""
        queue = self._queues.get(log)
        if queue is None:
            return
        while queue and (queue[0][0] <= upto or queue[0][1].ended):
            _, wait, index = queue.popleft()
            if not wait.ended:
                wait.settle(index, code)
        if not queue and self._queues.get(log) is queue:
            del self._queues[log]

    def lost(self, log: Hashable, code: ErrorCode) -> None:
        """Uncommitted records of `log` may never be committed, because the leadership or the disk was lost."""
        for _, wait, index in self._queues.pop(log, ()):
            if not wait.ended:
                wait.settle(index, code)

    def expire(self, monotonic_ms: int) -> None:
        """End every wait whose deadline has passed."""
        expired = False
        while self._deadlines and self._deadlines[0][0] <= monotonic_ms:
            wait = heapq.heappop(self._deadlines)[2]
            if not wait.ended:
                wait.end(ErrorCode.REQUEST_TIMED_OUT)
                expired = True
        if expired:
            for log in list(self._queues):
                self.committed(log, -1)  # removes ended waits from the front of the queue

    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `expire` has work to do."""
        while self._deadlines and self._deadlines[0][2].ended:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _forget_old_deadlines(self) -> None:
        if len(self._deadlines) > 64 and len(self._deadlines) > 4 * self._waiting:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].ended]
            heapq.heapify(self._deadlines)
