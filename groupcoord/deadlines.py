"""Deadlines by key: the sessions and revocations of many members."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

Key = TypeVar("Key")
MemberKey = tuple[str, str]
"""Group id and member id."""
PART_MEMBERS_MAX: Final = 500
PART_LETTERS_MAX: Final = 50_000
"""Of the ids of group and members, which stand in up to three records for each member."""


class WithMembers(Protocol):
    @property
    def members(self) -> Collection[str]: ...


class Deadlines(Generic[Key]):
    """A deadline that moves costs no more than a dictionary entry: it stays queued at its old time until then."""

    def __init__(self) -> None:
        self._due_ms: dict[Key, int] = {}
        self._queue: list[tuple[int, int, Key]] = []
        self._queued_ms: dict[Key, int] = {}
        self._order = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._due_ms

    def set(self, key: Key, due_ms: int) -> None:
        self._due_ms[key] = due_ms
        if due_ms < self._queued_ms.get(key, due_ms + 1):
            self._push(key, due_ms)

    def discard(self, key: Key) -> None:
        self._due_ms.pop(key, None)

    def next_ms(self) -> int | None:
        """When `expired` is to be called next: no later than the first deadline."""
        return self._queue[0][0] if self._queue else None

    def expired(self, now_ms: int) -> list[Key]:
        """The keys whose deadline has passed, which are removed."""
        keys = []
        while self._queue and self._queue[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._queue)
            if self._queued_ms.get(key) != queued_ms:
                continue
            del self._queued_ms[key]
            due_ms = self._due_ms.get(key)
            if due_ms is None:
                continue
            if due_ms <= now_ms:
                del self._due_ms[key]
                keys.append(key)
            else:
                self._push(key, due_ms)
        return keys

    def _push(self, key: Key, due_ms: int) -> None:
        self._queued_ms[key] = due_ms
        self._order += 1
        heapq.heappush(self._queue, (due_ms, self._order, key))


def earliest_ms(*deadlines: Deadlines[Any]) -> int | None:
    """When any of these has to be asked for `expired`."""
    return min((ms for each in deadlines if (ms := each.next_ms()) is not None), default=None)


def members_due(
    groups: Mapping[str, WithMembers], *deadlines: Deadlines[MemberKey], now_ms: int
) -> list[tuple[str, list[str]]]:
    """Groups, and members that are still there and for which a deadline has passed, which is removed.

    Those of a large group are in several parts, so that the records of their removal fit in one batch.
    """
    due: dict[str, set[str]] = {}
    for each in deadlines:
        for group_id, member_id in each.expired(now_ms):
            if group_id in groups and member_id in groups[group_id].members:
                due.setdefault(group_id, set()).add(member_id)
    return [(group_id, part) for group_id, members in due.items() for part in _parts(group_id, sorted(members))]


def _parts(group_id: str, member_ids: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    left = PART_LETTERS_MAX
    for member_id in member_ids:
        letters = len(group_id) + len(member_id)
        if part and (letters > left or len(part) == PART_MEMBERS_MAX):
            yield part
            part, left = [], PART_LETTERS_MAX
        part.append(member_id)
        left -= letters
    if part:
        yield part
