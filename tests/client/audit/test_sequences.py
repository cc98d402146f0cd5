"""Sequence numbers are counted as by a multiset, in memory that grows with the gaps only."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from raylog.client.audit.sequences import SEQUENCE_END, Segment, SequenceCounts, sweep

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10), st.integers(1, 3)), max_size=30)


def counted(ranges: list[tuple[int, int, int]]) -> tuple[SequenceCounts, Counter[int]]:
    counts, model = SequenceCounts(), Counter[int]()
    for start, length, times in ranges:
        if times == 1:
            for sequence in range(start, start + length):
                counts.add(sequence)
        else:
            counts.add_range(start, start + length, times)
        model.update(dict.fromkeys(range(start, start + length), times))
    return counts, model


@given(RANGES)
def test_counts_are_those_of_a_multiset(ranges: list[tuple[int, int, int]]) -> None:
    counts, model = counted(ranges)
    segments = counts.segments()
    assert {n: times for start, end, times in segments for n in range(start, end)} == model
    for before, after in itertools.pairwise(segments):
        assert (before.end, before.times) < (after.start, 0) or (
            before.end == after.start and before.times != after.times
        )


@given(st.lists(RANGES, max_size=4))
def test_a_sweep_tells_each_multiset(many: list[list[tuple[int, int, int]]]) -> None:
    pairs = [counted(ranges) for ranges in many]
    found = {n: times for start, end, times in sweep([each.segments() for each, _ in pairs]) for n in range(start, end)}
    names = {n for _, model in pairs for n in model}
    assert found == {n: tuple(model[n] for _, model in pairs) for n in names}


def test_a_million_numbers_in_order_are_one_range() -> None:
    counts = SequenceCounts()
    assert [counts.add(sequence) for sequence in range(1_000_000)].count(True) == 1
    assert counts.segments() == [Segment(0, 1_000_000, 1)]


def test_numbers_that_come_by_partitions_become_one_range() -> None:
    counts = SequenceCounts()
    for partition in range(7):
        for sequence in range(partition, 70_000, 7):
            counts.add(sequence)
    assert counts.segments() == [Segment(0, 70_000, 1)]


def test_ranges_over_all_numbers_take_no_memory() -> None:
    counts = SequenceCounts()
    for _ in range(100_000):
        counts.add_range(0, SEQUENCE_END)
    assert len(counts) < 2_000
    assert counts.segments() == [Segment(0, SEQUENCE_END, 100_000)]
