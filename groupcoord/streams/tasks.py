"""Tasks: what the members of a streams group are assigned. A task is a partition of a subtopology."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

TaskId = tuple[str, int]
"""Id of the subtopology, and partition."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks by what a member does with them."""

    active: frozenset[TaskId] = frozenset()
    """It processes records."""
    standby: frozenset[TaskId] = frozenset()
    """It keeps a copy of the state."""
    warmup: frozenset[TaskId] = frozenset()
    """It builds the state up, to process records later. This version assigns none."""

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __and__(self, other: Tasks) -> Tasks:
        return Tasks(self.active & other.active, self.standby & other.standby, self.warmup & other.warmup)

    def __or__(self, other: Tasks) -> Tasks:
        return Tasks(self.active | other.active, self.standby | other.standby, self.warmup | other.warmup)

    def __sub__(self, other: Tasks) -> Tasks:
        return Tasks(self.active - other.active, self.standby - other.standby, self.warmup - other.warmup)

    def __le__(self, other: Tasks) -> bool:
        return self.active <= other.active and self.standby <= other.standby and self.warmup <= other.warmup

    @property
    def passive(self) -> frozenset[TaskId]:
        """The tasks of which the member has the state without processing records."""
        return self.standby | self.warmup


NO_TASKS: Final = Tasks()


def by_subtopology(tasks: Iterable[TaskId]) -> dict[str, tuple[int, ...]]:
    """The partitions of each subtopology, both in order."""
    partitions: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        partitions.setdefault(subtopology_id, []).append(partition)
    return {subtopology_id: tuple(numbers) for subtopology_id, numbers in partitions.items()}
