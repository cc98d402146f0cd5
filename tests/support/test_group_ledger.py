"""The ledger of a group reports lost records, wrong commits, and groups that make no progress."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.group_ledger import (
    Acknowledged,
    Assigned,
    CommitBegun,
    Committed,
    Consumed,
    Entry,
    FetchBegun,
    Fetched,
    Killed,
    Recovered,
    Violation,
    check,
)

A, B = "a", "b"
GOOD: list[Entry] = [
    Assigned(A, frozenset({0})),
    Acknowledged(0, 0, b"0"),
    Consumed(A, 0, 0, b"0"),
    CommitBegun(A, 1, {0: 1}),
    Committed(A, 1, {0: 1}),
    Consumed(A, 0, 1, b"1"),
    Acknowledged(0, 1, b"1"),
    Killed(("coordinator",)),
    CommitBegun(A, 2, {0: 2}),
    Recovered(1.0),
    Assigned(B, frozenset({0})),
    Consumed(B, 0, 1, b"1"),
    CommitBegun(B, 1, {0: 2}),
    Committed(B, 1, {0: 2}),
    FetchBegun(1),
    Fetched(1, {0: 2}),
]


def find(entries: Sequence[Entry], *, consumed_per_kill_min: int = 2) -> str:
    with pytest.raises(Violation) as found:
        check(entries, partitions=1, consumed_per_kill_min=consumed_per_kill_min)
    return str(found.value)


def without(*places: int) -> list[Entry]:
    return [entry for place, entry in enumerate(GOOD) if place not in places]


def test_a_correct_run() -> None:
    check(GOOD, partitions=1, consumed_per_kill_min=2)


def test_a_record_that_was_not_consumed() -> None:
    assert "never consumed, the first at (0, 2)" in find([*GOOD, Acknowledged(0, 2, b"2")])


def test_a_value_that_differs_from_the_acknowledged_one() -> None:
    assert "two values at (0, 1)" in find([*GOOD, Consumed(B, 0, 1, b"x")])


def test_a_duplicate_value() -> None:
    assert "more than one offset" in find([*GOOD, Consumed(B, 0, 2, b"1")])


def test_a_commit_beyond_the_consumed_records() -> None:
    assert "a commits 1 in partition 0, and 0 was not consumed" in find([*GOOD[:2], *GOOD[3:5], GOOD[2], *GOOD[5:]])


def test_a_decreasing_commit() -> None:
    assert "a commit of b goes back in partition 0: to 1 from 2" in find(
        [*GOOD, CommitBegun(B, 2, {0: 1}), Committed(B, 2, {0: 1})]
    )


def test_a_commit_in_flight_during_another_is_no_decrease() -> None:
    late = [CommitBegun(A, 3, {0: 1}), *GOOD[-4:-2], Committed(A, 3, {0: 1}), *GOOD[-2:]]
    check([*GOOD[:-4], *late], partitions=1, consumed_per_kill_min=2)


def test_a_fetched_offset_below_the_commit() -> None:
    assert "what is found committed goes back in partition 0: to 1 from 2" in find([*GOOD[:-1], Fetched(1, {0: 1})])


def test_a_new_owner_that_starts_below_the_commit() -> None:
    entries: list[Entry] = [*GOOD, Assigned(A, frozenset({0})), Consumed(A, 0, 1, b"1")]
    assert "a begins partition 0 at 1, and 2 was committed before" in find(entries)


def test_a_group_that_does_not_recover() -> None:
    assert "did not recover" in find(without(9))
    assert "killed before the group had recovered" in find([*GOOD[:8], *GOOD[7:]])


def test_a_group_that_consumes_too_little() -> None:
    assert "hardly consumed" in find(GOOD, consumed_per_kill_min=3)


def test_an_end_before_all_records_are_consumed() -> None:
    assert "in the end None" in find(without(14, 15))
    assert "in the end Fetched" in find([*GOOD, FetchBegun(2), Fetched(2, {})])
