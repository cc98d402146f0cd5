"""A plan covers exactly the requested offsets in ranges of similar size, and says what no longer exists."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.offset_ranges import (
    Bounds,
    OffsetRange,
    Resolved,
    continue_from,
    plan_ranges,
    resolve,
    share_out,
)
from raylog.raydp_bridge.partition_offsets import EARLIEST, LATEST, PartitionOffsets
from raylog.raydp_bridge.read_options import Position

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BOUNDS = Bounds({A0: 0, A1: 100, B0: 7}, {A0: 10, A1: 1_100, B0: 7})
TPS = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]


def offsets(value: int | PartitionOffsets) -> dict[TopicPartition, int]:
    return resolve(Position("startingOffsets", value), BOUNDS, {}).offsets


def by_time(found: dict[TopicPartition, int], *, or_latest: bool = False) -> dict[TopicPartition, int]:
    return resolve(Position("startingTimestamp", 5, by_time=True, or_latest=or_latest), BOUNDS, found).offsets


def whole(min_partitions: int | None = None) -> list[OffsetRange]:
    return plan_ranges(BOUNDS.earliest, BOUNDS.latest, min_partitions=min_partitions)


def test_earliest_and_latest_are_the_bounds_of_each_partition() -> None:
    assert offsets(EARLIEST) == BOUNDS.earliest
    assert offsets(LATEST) == BOUNDS.latest
    assert offsets({A0: 4, A1: -2, B0: -1}) == {A0: 4, A1: 100, B0: 7}


def test_an_offset_that_was_deleted_is_a_loss_and_the_earliest_takes_its_place() -> None:
    assert resolve(Position("startingOffsets", {A0: 0, A1: 99, B0: 0}), BOUNDS, {}) == Resolved(
        {A0: 0, A1: 100, B0: 7},
        (
            "startingOffsets: a-1: offset 99 no longer exists, the earliest is 100",
            "startingOffsets: b-0: offset 0 no longer exists, the earliest is 7",
        ),
    )


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({A0: 11, A1: -2, B0: 7}, r"startingOffsets: a-0: 11 must be between 0 \(earliest\) and 10 \(latest\)"),
        ({A0: 5}, r"startingOffsets: must contain all partitions; a-1, b-0 are missing; use -2 for earliest"),
        ({A0: 5, A1: -2, B0: -2, TopicPartition("b", 1): 0}, "startingOffsets: contains b-1, which do not exist"),
    ],
)
def test_an_error_names_key_partition_and_rule(value: PartitionOffsets, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        offsets(value)


def test_a_timestamp_without_a_later_record_is_an_error_or_the_latest_offset() -> None:
    found = {A0: 3, A1: -1, B0: -1}
    assert by_time(found, or_latest=True) == {A0: 3, A1: 1_100, B0: 7}
    with pytest.raises(
        ConfigError, match="startingTimestamp: a-1 has no record at or after the timestamp 5; set starting"
    ):
        by_time(found)


def test_an_offset_found_by_timestamp_stays_within_what_is_readable() -> None:
    assert by_time({A0: 12, A1: 4, B0: 7}) == {A0: 10, A1: 100, B0: 7}


def test_by_default_there_is_one_range_per_non_empty_partition() -> None:
    assert whole() == [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 100, 1_100)]


def test_the_largest_ranges_are_split_until_there_are_enough() -> None:
    assert whole(min_partitions=5) == [
        OffsetRange("a", 0, 0, 10),
        OffsetRange("a", 1, 100, 350),
        OffsetRange("a", 1, 350, 600),
        OffsetRange("a", 1, 600, 850),
        OffsetRange("a", 1, 850, 1_100),
    ]


def test_min_partitions_cannot_reduce_the_number_of_tasks() -> None:
    assert whole(min_partitions=1) == whole()
    assert plan_ranges(BOUNDS.latest, BOUNDS.latest, min_partitions=5) == []


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(ConfigError, match="ending_offsets: a-0: the end 4 must be at least the starting offset 5"):
        plan_ranges({A0: 5}, {A0: 4}, key="ending_offsets")


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 400)), min_size=1, max_size=6),
    min_partitions=st.integers(1, 60),
)
def test_ranges_are_in_order_of_similar_size_without_gap_or_overlap(
    sizes: list[tuple[int, int]], min_partitions: int
) -> None:
    starts = {TPS[index]: start for index, (start, _) in enumerate(sizes)}
    ends = {TPS[index]: start + size for index, (start, size) in enumerate(sizes)}
    pieces = plan_ranges(starts, ends, min_partitions=min_partitions)

    occupied = [tp for tp in TPS[: len(sizes)] if ends[tp] > starts[tp]]
    assert len(pieces) == max(len(occupied), min(min_partitions, sum(size for _, size in sizes)))
    assert [tp for tp, _ in groupby(pieces, key=lambda piece: piece.tp)] == occupied
    largest = max((piece.offset_count for piece in pieces), default=0)
    for tp, group in groupby(pieces, key=lambda piece: piece.tp):
        run = list(group)
        assert run[0].start_offset == starts[tp]
        assert run[-1].end_offset == ends[tp]
        assert all(before.end_offset == after.start_offset for before, after in pairwise(run))
        counts = {piece.offset_count for piece in run}
        assert min(counts) > 0
        assert max(counts) - min(counts) <= 1
        # no other cut of this range into one piece fewer would have kept its pieces below the largest of all
        if len(run) > 1:
            assert (ends[tp] - starts[tp]) / (len(run) - 1) > largest - 1


@given(
    st.lists(st.builds(OffsetRange, st.just("t"), st.integers(0, 5), st.integers(0, 99), st.integers(100, 300))),
    st.integers(1, 8),
)
def test_shares_contain_every_range_once_and_are_even(ranges: list[OffsetRange], tasks: int) -> None:
    shares = share_out(ranges, tasks)
    assert len(shares) == tasks
    key = lambda each: (each.tp, each.start_offset, each.end_offset)  # noqa: E731
    assert sorted((each for share in shares for each in share), key=key) == sorted(ranges, key=key)
    assert share_out(reversed(ranges), tasks) == share_out(sorted(ranges, key=key), tasks) or len(set(ranges)) < len(
        ranges
    )
    counts = sorted(sum(each.offset_count for each in share) for share in shares)
    assert counts[-1] - counts[0] <= max((each.offset_count for each in ranges), default=0)


def test_a_stream_goes_on_where_it_was_and_new_partitions_start_at_the_earliest() -> None:
    assert continue_from({A0: 4, A1: 1_100}, Bounds({A0: 0, A1: 100, B0: 0}, {A0: 10, A1: 1_100, B0: 3})) == Resolved(
        {A0: 4, A1: 1_100, B0: 0}
    )


@pytest.mark.parametrize(
    ("previous", "bounds", "start", "loss"),
    [
        (4, (5, 9), 5, "a-0: offset 4 no longer exists, the earliest is 5"),
        (4, (0, 3), 3, "the offset of a-0 was changed from 4 to 3"),
        (4, (9, 9), 9, "a-0: offset 4 no longer exists, the earliest is 9"),
        (None, (2, 9), 2, "the added partition a-0 starts at offset 2 instead of 0"),
        (4, None, None, "a-0 is gone"),
    ],
)
def test_what_a_stream_cannot_read_any_more_is_a_loss(
    previous: int | None, bounds: tuple[int, int] | None, start: int | None, loss: str
) -> None:
    found = Bounds({A0: bounds[0]}, {A0: bounds[1]}) if bounds else Bounds({}, {})
    assert continue_from({} if previous is None else {A0: previous}, found) == Resolved(
        {} if start is None else {A0: start}, (loss,)
    )


@given(
    st.dictionaries(st.sampled_from(TPS), st.integers(0, 20)),
    st.dictionaries(st.sampled_from(TPS), st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)),
)
def test_a_loss_is_reported_exactly_where_an_offset_is_not_read(
    previous: dict[TopicPartition, int], bounds: dict[TopicPartition, list[int]]
) -> None:
    resolved = continue_from(
        previous, Bounds({tp: low for tp, (low, _) in bounds.items()}, {tp: high for tp, (_, high) in bounds.items()})
    )
    assert resolved.offsets.keys() == bounds.keys()
    for tp in TPS:
        low, high = bounds.get(tp, (0, 0))
        said = [loss for loss in resolved.losses if str(tp) in loss]
        if tp not in bounds:
            assert len(said) == (tp in previous)
        else:
            assert low <= resolved.offsets[tp] <= high
            assert len(said) == (resolved.offsets[tp] != previous.get(tp, 0))
