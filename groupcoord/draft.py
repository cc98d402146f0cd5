"""A group with decided records applied that are not appended yet."""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar


class Replayed(Protocol):
    """A group of any kind."""

    def copy(self) -> Self: ...

    def replay(self, record: Any) -> None: ...


Group = TypeVar("Group", bound=Replayed)
Decided = TypeVar("Decided")


class GroupDraft(Generic[Group, Decided]):
    """`group` is the group itself until the first record is added, so that a heartbeat that changes nothing copies
    nothing."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.records: list[Decided] = []

    def add(self, record: Decided) -> None:
        if not self.records:
            self.group = self.group.copy()
        self.records.append(record)
        self.group.replay(record)
