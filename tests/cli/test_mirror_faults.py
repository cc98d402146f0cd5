"""What `raylog mirror start` prints of a running mirror: each fault once, and again when it has come back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from raylog.cli.mirror_faults import NEW_MAX, QUIET_SECONDS, FaultNews, actor_and_flow_faults, partition_faults

REFUSED, BLOCKED = "A->B: topics: refused", "A->B: blocked"


def test_a_fault_is_printed_once_while_it_stays() -> None:
    news = FaultNews()
    assert news.new([REFUSED], 0) == [REFUSED]
    assert news.new([REFUSED, BLOCKED, BLOCKED], 5) == [BLOCKED]
    assert news.new([REFUSED, BLOCKED], 5 + 10 * QUIET_SECONDS) == []


def test_a_fault_whose_numbers_change_is_the_same() -> None:
    news = FaultNews()
    assert news.new(["orders-0: offset 124 is not copied", "orders-1: offset 9 is not copied"], 0) == [
        "orders-0: offset 124 is not copied"
    ]
    assert news.new(["orders-0: offset 125 is not copied", "other-0: offset 1 is not copied"], 5) == [
        "other-0: offset 1 is not copied"
    ]


def test_a_fault_that_comes_back_is_printed_again_after_a_while() -> None:
    news = FaultNews()
    news.new([REFUSED], 0)
    assert news.new([], QUIET_SECONDS / 2) == []
    assert news.new([REFUSED], QUIET_SECONDS - 1) == []
    assert news.new([], 2 * QUIET_SECONDS) == []
    assert news.new([REFUSED], 2 * QUIET_SECONDS + 1) == [REFUSED]


def test_of_very_many_the_first_ones_are_printed() -> None:
    faults = [f"fault {'x' * number}" for number in range(NEW_MAX + 7)]
    lines = FaultNews().new(faults, 0)
    assert lines[:-1] == faults[:NEW_MAX]
    assert lines[-1] == "and 7 more, which raylog mirror status shows"


def test_each_fault_of_actors_flows_and_partitions_is_found() -> None:
    task = SimpleNamespace(task="topics", error=None, problems=("topic t: not copied",))
    failed = SimpleNamespace(task="groups", error="cluster A: refused", problems=("of the run before",))
    partitions = [SimpleNamespace(error=error) for error in ("cluster B: full", None, "cluster B: full")]
    flow = SimpleNamespace(flow="A->B", errors=("cluster A: lost",), control=(task, failed), partitions=partitions)
    running = SimpleNamespace(number=0, state="running", flows=[flow])
    actors = cast("Any", [running, SimpleNamespace(number=1, state="starting", flows=[])])
    assert actor_and_flow_faults(actors) == [
        "actor 1 is starting",
        "A->B: cluster A: lost",
        "A->B: topics: topic t: not copied",
        "A->B: groups: cluster A: refused",
    ]
    assert partition_faults(actors) == ["A->B: cluster B: full"]
