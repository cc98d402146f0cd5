"""The assignor of streams groups: complete, balanced, sticky, and no task twice in a process."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.groupcoord.streams.assignor import TaskCandidate, assign
from raylog.groupcoord.streams.tasks import NO_TASKS, Tasks
from tests.support.forms import by_form

COUNTS = st.dictionaries(st.sampled_from("012"), st.integers(1, 9), min_size=1)
NEW = TaskCandidate("new", NO_TASKS)


def candidates(processes: list[str], before: dict[str, Tasks] | None = None) -> dict[str, TaskCandidate]:
    """Members m0, m1 and so on of these processes."""
    return {
        f"m{number}": TaskCandidate(process, (before or {}).get(f"m{number}", NO_TASKS))
        for number, process in enumerate(processes)
    }


def held(found: dict[str, Tasks], members: dict[str, TaskCandidate]) -> Counter[tuple[str, tuple[str, int]]]:
    """How often each process has each task."""
    return Counter(
        (members[name].process_id, task) for name, tasks in found.items() for task in (*tasks.active, *tasks.standby)
    )


@settings(max_examples=by_form(60, long=3000), deadline=None)
@given(
    processes=st.lists(st.sampled_from("pqrs"), min_size=1, max_size=8),
    counts=COUNTS,
    stateful=st.sets(st.sampled_from("012")),
    replicas=st.integers(0, 3),
    other=st.lists(st.sampled_from("pqrs"), min_size=1, max_size=8),
)
def test_every_task_has_its_owners(
    processes: list[str], counts: dict[str, int], stateful: set[str], replicas: int, other: list[str]
) -> None:
    """Also after an assignment to other processes, which the members are to keep as far as possible."""
    before = assign(candidates(other), counts, stateful, standby_replicas=replicas)
    members = candidates(processes, before)
    found = assign(members, counts, stateful, standby_replicas=replicas)
    tasks = [(name, number) for name, count in counts.items() for number in range(count)]
    assert sorted(task for each in found.values() for task in each.active) == sorted(tasks)
    copies = min(replicas, len(set(processes)) - 1)
    standby = Counter(task for each in found.values() for task in each.standby)
    assert standby == {task: copies for task in tasks if task[0] in stateful and copies}
    assert set(held(found, members).values()) == {1}
    if len(set(processes)) == len(processes):
        numbers = [len(each.active) for each in found.values()]
        assert max(numbers) - min(numbers) <= 1


@settings(max_examples=by_form(60, long=3000), deadline=None)
@given(size=st.integers(1, 8), counts=COUNTS, replicas=st.integers(0, 2))
def test_nothing_moves_without_need(size: int, counts: dict[str, int], replicas: int) -> None:
    processes = [f"p{number}" for number in range(size)]
    first = assign(candidates(processes), counts, counts, standby_replicas=replicas)
    again = assign(candidates(processes, first), counts, counts, standby_replicas=replicas)
    assert {name: tasks.active for name, tasks in again.items()} == {
        name: tasks.active for name, tasks in first.items()
    }
    total = sum(counts.values())
    joined = assign({**candidates(processes, first), "new": NEW}, counts, counts, standby_replicas=replicas)
    moved = [task for name, tasks in first.items() for task in tasks.active if task not in joined[name].active]
    assert len(moved) <= -(-total // (size + 1)), "no more than the share of the new member"
    del first["m0"]
    left = assign(
        {name: each for name, each in candidates(processes, first).items() if name != "m0"},
        counts,
        counts,
        standby_replicas=replicas,
    )
    assert all(first[name].active <= left[name].active for name in first)


def test_a_standby_task_becomes_active_where_it_is() -> None:
    before = assign(candidates(["p", "q", "r"]), {"0": 3}, ["0"], standby_replicas=1)
    lost = before.pop("m0")
    members = {name: each for name, each in candidates(["p", "q", "r"], before).items() if name != "m0"}
    found = assign(members, {"0": 3}, ["0"], standby_replicas=1)
    copies = {task: name for name, tasks in before.items() for task in tasks.standby}
    assert all(task in found[copies[task]].active for task in lost.active)


def test_a_standby_task_comes_before_the_least_load() -> None:
    before = {
        "m0": Tasks(frozenset({("0", 0)}), frozenset({("0", 2)})),
        "m1": Tasks(frozenset({("0", 1)})),
    }
    found = assign(candidates(["z", "a"], before), {"0": 3}, ["0"], standby_replicas=0)
    assert found["m0"].active == {("0", 0), ("0", 2)}


def test_a_process_with_more_members_has_more_tasks() -> None:
    found = assign(candidates(["p", "p", "q"]), {"0": 9}, [], standby_replicas=0)
    assert [len(found[name].active) for name in ("m0", "m1", "m2")] == [3, 3, 3]


def test_the_first_assignment_is_in_the_order_of_tasks() -> None:
    found = assign(candidates(["p", "q"]), {"0": 2, "1": 2}, [], standby_replicas=0)
    assert found["m0"].active == {("0", 0), ("1", 0)}


def test_no_members() -> None:
    assert assign({}, {"0": 3}, ["0"], standby_replicas=1) == {}
