"""A plan covers exactly the requested offsets in ranges of similar size, and refuses offsets outside the topic."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.offset_ranges import EndingOffsets, OffsetRange, StartingOffsets, plan_ranges

EARLIEST = {0: 0, 1: 100, 2: 7}
LATEST = {0: 10, 1: 1_100, 2: 7}


def plan(
    starting_offsets: StartingOffsets = "earliest",
    ending_offsets: EndingOffsets = "latest",
    min_partitions: int | None = None,
) -> list[OffsetRange]:
    return plan_ranges(
        "flights",
        EARLIEST,
        LATEST,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        min_partitions=min_partitions,
    )


def test_by_default_there_is_one_range_per_non_empty_partition() -> None:
    assert plan() == [OffsetRange("flights", 0, 0, 10), OffsetRange("flights", 1, 100, 1_100)]


def test_a_mapping_sets_the_offset_of_each_partition_with_minus_2_and_minus_1_for_its_ends() -> None:
    assert plan({0: 4, 1: -2, 2: -1}, {0: -1, 1: 101, 2: 7}) == [
        OffsetRange("flights", 0, 4, 10),
        OffsetRange("flights", 1, 100, 101),
    ]


def test_from_latest_to_latest_is_empty() -> None:
    assert plan("latest", "latest") == []
    assert plan("latest", "latest", min_partitions=5) == []


def test_the_largest_ranges_are_split_until_there_are_enough() -> None:
    assert plan(min_partitions=5) == [
        OffsetRange("flights", 0, 0, 10),
        OffsetRange("flights", 1, 100, 350),
        OffsetRange("flights", 1, 350, 600),
        OffsetRange("flights", 1, 600, 850),
        OffsetRange("flights", 1, 850, 1_100),
    ]


def test_min_partitions_cannot_reduce_the_number_of_tasks() -> None:
    assert plan(min_partitions=1) == plan()


@pytest.mark.parametrize(
    ("starting_offsets", "ending_offsets", "rule"),
    [
        ({0: 0, 1: 99, 2: 7}, "latest", r"starting_offsets\[1\]=99: must be between 100 \(earliest\) and 1100"),
        ({0: 11, 1: -2, 2: 7}, "latest", r"starting_offsets\[0\]=11: must be between 0"),
        ("earliest", {0: 11, 1: -1, 2: -1}, r"ending_offsets\[0\]=11: must be between 0"),
        ("earliest", {0: -3, 1: -1, 2: -1}, r"ending_offsets\[0\]=-3: must be between 0"),
        ("earliest", {0: -2, 1: -1, 2: -1}, r"ending_offsets\[0\]=-2: a read cannot end at the earliest"),
        ("earliest", "earliest", r"ending_offsets\[0\]=-2: a read cannot end at the earliest"),
        ({0: 5, 1: -2, 2: -2}, {0: 4, 1: -1, 2: -1}, r"ending_offsets\[0\]=4: must be at least the starting offset 5"),
        ({0: 5}, "latest", r"starting_offsets: must contain the partitions \[1, 2\]"),
        ({0: 5, 1: -2, 2: -2, 3: 0}, "latest", r"starting_offsets: contains the partitions \[3\]"),
        ("beginning", "latest", r"starting_offsets='beginning': must be 'earliest', 'latest' or"),
    ],
)
def test_an_error_names_key_value_and_rule(
    starting_offsets: StartingOffsets, ending_offsets: EndingOffsets, rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        plan(starting_offsets, ending_offsets)


def test_a_job_has_at_least_one_task() -> None:
    with pytest.raises(ConfigError, match="min_partitions=0: must be at least 1"):
        plan(min_partitions=0)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 400)), min_size=1, max_size=8),
    min_partitions=st.integers(1, 60),
)
def test_ranges_are_in_order_of_similar_size_without_gap_or_overlap(
    sizes: list[tuple[int, int]], min_partitions: int
) -> None:
    earliest = {partition: start for partition, (start, _) in enumerate(sizes)}
    latest = {partition: start + size for partition, (start, size) in enumerate(sizes)}
    pieces = plan_ranges(
        "t", earliest, latest, starting_offsets="earliest", ending_offsets="latest", min_partitions=min_partitions
    )

    occupied = [partition for partition, (_, size) in enumerate(sizes) if size]
    assert len(pieces) == max(len(occupied), min(min_partitions, sum(size for _, size in sizes)))
    assert [partition for partition, _ in groupby(pieces, key=lambda piece: piece.partition)] == occupied
    largest = max((piece.offset_count for piece in pieces), default=0)
    for partition, group in groupby(pieces, key=lambda piece: piece.partition):
        run = list(group)
        assert run[0].start_offset == earliest[partition]
        assert run[-1].end_offset == latest[partition]
        assert all(before.end_offset == after.start_offset for before, after in pairwise(run))
        counts = {piece.offset_count for piece in run}
        assert min(counts) > 0
        assert max(counts) - min(counts) <= 1
        # no other cut of this range into one piece fewer would have kept its pieces below the largest of all
        if len(run) > 1:
            assert (latest[partition] - earliest[partition]) / (len(run) - 1) > largest - 1
