"""The assignor of streams groups, `sticky`: equal shares, and each task stays where its state is.

Active tasks go to their previous members, else to members that had them as standby tasks, as long as the member has
less than its share; what is left goes to the process with the least load, which is the number of tasks per member.
Standby tasks of subtopologies with state follow in the same manner, at most one copy of a task in each process.
Source: the behaviour of Kafka 4.2's assignor of this name.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raylog.groupcoord.streams.tasks import TaskId, Tasks

ASSIGNOR_NAME: Final = "sticky"


@dataclass(frozen=True, slots=True)
class TaskCandidate:
    """A member, as the assignor sees it."""

    process_id: str
    before: Tasks
    """Its previous target assignment."""


def assign(
    members: Mapping[str, TaskCandidate],
    task_counts: Mapping[str, int],
    stateful: Iterable[str],
    *,
    standby_replicas: int,
) -> dict[str, Tasks]:
    """The tasks of each member: each task is active at one, and standby at `standby_replicas` others if there are.

    `task_counts` are those of each subtopology; only `stateful` ones have standby tasks.
    """
    if not members:
        return {}
    tasks = [(name, number) for name, count in task_counts.items() for number in range(count)]
    with_state = frozenset(stateful) if standby_replicas > 0 else frozenset()
    copied = [task for task in tasks if task[0] in with_state]
    work = _Assignment(members)
    work.assign_active(tasks, total=len(tasks) + standby_replicas * len(copied))
    if copied:
        work.assign_standby(copied, standby_replicas)
    return {
        member_id: Tasks(frozenset(work.active[member_id]), frozenset(work.standby[member_id])) for member_id in members
    }


class _Share:
    """How many tasks a member may keep: the average, rounded up, of what those have that have not got it yet."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self._decide()

    def assigned(self, count: int) -> None:
        """A member has so many tasks now."""
        if count == self.tasks_max:
            self._members -= 1
            self._tasks -= count
            self._decide()

    def _decide(self) -> None:
        self.tasks_max = -(-self._tasks // self._members) if self._members else 0


class _Process:
    """The members of a process, and the tasks that any of them has."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self._count = 0
        self._by_count: list[tuple[int, str]] = []
        """A heap; entries with an outdated count are skipped."""

    @property
    def order(self) -> tuple[float, str]:
        """The process with the least load first."""
        return self._count / len(self.counts), self.process_id

    def add_member(self, member_id: str) -> None:
        self.counts[member_id] = 0
        heapq.heappush(self._by_count, (0, member_id))

    def add_task(self, member_id: str, task: TaskId) -> int:
        """Returns how many tasks the member has now."""
        self.tasks.add(task)
        self._count += 1
        self.counts[member_id] += 1
        heapq.heappush(self._by_count, (self.counts[member_id], member_id))
        return self.counts[member_id]

    def least_loaded(self) -> str:
        while self._by_count[0][0] != self.counts[self._by_count[0][1]]:
            heapq.heappop(self._by_count)
        return self._by_count[0][1]


class _Assignment:
    def __init__(self, members: Mapping[str, TaskCandidate]) -> None:
        self.active: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self.standby: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self._processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        self._active_before: dict[TaskId, str] = {}
        self._standby_before: dict[TaskId, list[str]] = {}
        for member_id in sorted(members):
            member = members[member_id]
            process = self._processes.setdefault(member.process_id, _Process(member.process_id))
            process.add_member(member_id)
            self._process_of[member_id] = process
            for task in member.before.active:
                self._active_before[task] = member_id
            for task in member.before.standby:
                self._standby_before.setdefault(task, []).append(member_id)

    def assign_active(self, tasks: list[TaskId], *, total: int) -> None:
        """`total` counts standby tasks as well."""
        self._total_share = _Share(total, len(self.active))
        share = _Share(len(tasks), len(self.active))
        left = []
        for task in sorted(tasks, key=lambda each: (each[1], each[0])):
            owner = self._active_before.get(task)
            if owner is not None and self._count(owner) < share.tasks_max:
                share.assigned(self._add(owner, task, self.active))
            else:
                left.append(task)
        rest = []
        for task in left:
            owner = min(self._standby_before.get(task, ()), key=self._load, default=None)
            if owner is not None and self._count(owner) < share.tasks_max:
                share.assigned(self._add(owner, task, self.active))
            else:
                rest.append(task)
        queue = self._queue()
        for task in sorted(rest):
            self._add_to_least_loaded(queue, task, self.active)

    def assign_standby(self, tasks: list[TaskId], replicas: int) -> None:
        left = []
        for task in sorted(tasks, key=lambda each: (each[1], each[0]), reverse=True):
            for number in range(replicas):
                owner = self._previous_holder(task)
                if owner is None:
                    left.append((task, replicas - number))
                    break
                self._add(owner, task, self.standby)
        queue = self._queue()
        for task, missing in sorted(left, reverse=True):
            for _ in range(missing):
                if not self._add_to_least_loaded(queue, task, self.standby):
                    break  # every process has the task

    def _previous_holder(self, task: TaskId) -> str | None:
        """A member that had the task, and can get it as a standby task."""
        active = self._active_before.get(task)
        holders = [] if active is None else [active]
        holders += sorted(self._standby_before.get(task, ()), key=self._load)
        for member_id in holders:
            if task not in self._process_of[member_id].tasks and self._count(member_id) < self._total_share.tasks_max:
                return member_id
        return None

    def _queue(self) -> list[tuple[tuple[float, str], _Process]]:
        return sorted(((process.order, process) for process in self._processes.values()), key=lambda each: each[0])

    def _add_to_least_loaded(
        self, queue: list[tuple[tuple[float, str], _Process]], task: TaskId, to: dict[str, list[TaskId]]
    ) -> bool:
        """Returns whether a process without the task was found: at most one has it for each copy that is assigned."""
        passed = []
        while queue and task in queue[0][1].tasks:
            passed.append(heapq.heappop(queue))
        found = bool(queue)
        if found:
            process = queue[0][1]
            self._add(process.least_loaded(), task, to)
            heapq.heapreplace(queue, (process.order, process))
        for each in passed:
            heapq.heappush(queue, each)
        return found

    def _add(self, member_id: str, task: TaskId, to: dict[str, list[TaskId]]) -> int:
        """Returns how many tasks the member has now."""
        to[member_id].append(task)
        count = self._process_of[member_id].add_task(member_id, task)
        self._total_share.assigned(count)
        return count

    def _count(self, member_id: str) -> int:
        return self._process_of[member_id].counts[member_id]

    def _load(self, member_id: str) -> tuple[float, int, str]:
        load, _ = self._process_of[member_id].order
        return load, self._count(member_id), member_id
