"""What `raylog mirror start` tells of a running mirror: each fault once, and again when it has come back."""

from __future__ import annotations

from raylog.cli.mirror_faults import NEW_MAX, QUIET_SECONDS, FaultNews

REFUSED, BLOCKED = "A->B: topics: refused", "A->B: blocked"


def test_a_fault_is_told_once_while_it_stays() -> None:
    news = FaultNews()
    assert news.new([REFUSED], 0) == [REFUSED]
    assert news.new([REFUSED, BLOCKED, BLOCKED], 5) == [BLOCKED]
    assert news.new([REFUSED, BLOCKED], 5 + 10 * QUIET_SECONDS) == []


def test_a_fault_that_comes_back_is_told_again_after_a_while() -> None:
    news = FaultNews()
    news.new([REFUSED], 0)
    assert news.new([], QUIET_SECONDS / 2) == []
    assert news.new([REFUSED], QUIET_SECONDS - 1) == []
    assert news.new([], 2 * QUIET_SECONDS) == []
    assert news.new([REFUSED], 2 * QUIET_SECONDS + 1) == [REFUSED]


def test_of_very_many_the_first_ones_are_told() -> None:
    lines = FaultNews().new([f"fault {number}" for number in range(NEW_MAX + 7)], 0)
    assert lines[:-1] == [f"fault {number}" for number in range(NEW_MAX)]
    assert lines[-1] == "and 7 more, which raylog mirror status shows"
