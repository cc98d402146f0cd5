"""A batch of a stream has as many offsets as its limits admit, shared fairly among partitions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.admission import admit, hold
from raylog.raydp_bridge.read_options import Limits

A, B, C = (TopicPartition("t", number) for number in range(3))
STARTS = {A: 10, B: 0, C: 5}
ENDS = {A: 40, B: 70, C: 5}


def test_without_limits_a_batch_has_all_that_is_available() -> None:
    assert admit(STARTS, ENDS, Limits(), waited_ms=0) == ENDS


def test_the_limit_is_split_in_proportion_to_what_each_partition_has() -> None:
    assert admit(STARTS, ENDS, Limits(max_offsets=50), waited_ms=0) == {A: 25, B: 35, C: 5}
    assert admit(STARTS, ENDS, Limits(max_offsets=100), waited_ms=0) == ENDS


def test_small_partitions_are_not_starved() -> None:
    assert admit({A: 0, B: 0}, {A: 1_000_000, B: 1}, Limits(max_offsets=10), waited_ms=0) == {A: 9, B: 1}


def test_a_batch_waits_for_the_least_number_of_offsets_but_not_longer_than_the_delay() -> None:
    limits = Limits(min_offsets=101, max_delay_ms=5_000)
    assert admit(STARTS, ENDS, limits, waited_ms=4_999) == STARTS
    assert admit(STARTS, ENDS, limits, waited_ms=5_000) == ENDS
    assert admit(STARTS, ENDS, Limits(min_offsets=100), waited_ms=0) == ENDS
    assert admit(STARTS, ENDS, Limits(50, 100), waited_ms=0) == {A: 25, B: 35, C: 5}


def test_a_fixed_end_is_held_in_partitions_that_still_exist() -> None:
    assert hold({A: 50, B: 3}, {A: 40, B: 7, C: 5}) == {A: 40, B: 3}


@given(
    st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 40)), min_size=1, max_size=8),
    st.integers(1, 1 << 62) | st.integers(1, 20),
)
def test_every_batch_advances_within_the_limit_until_all_is_read(sizes: list[tuple[int, int]], limit: int) -> None:
    starts = {TopicPartition("t", index): start for index, (start, _) in enumerate(sizes)}
    ends = {TopicPartition("t", index): start + size for index, (start, size) in enumerate(sizes)}
    total = sum(size for _, size in sizes)
    admitted = admit(starts, ends, Limits(max_offsets=limit), waited_ms=0)
    counts = {tp: admitted[tp] - starts[tp] for tp in starts}
    busy = [tp for tp in starts if ends[tp] > starts[tp]]
    assert sum(counts.values()) <= max(limit, len(busy)) + len(busy)
    for tp, count in counts.items():
        size = ends[tp] - starts[tp]
        assert 0 <= count <= size
        if size:
            # the naive share, in exact fractions, less than one offset away except that none is starved
            share = min(Fraction(size), Fraction(limit) * size / total)
            assert count >= 1
            assert count == 1 or abs(count - share) < 1
