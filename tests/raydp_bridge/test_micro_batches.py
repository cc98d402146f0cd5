"""A micro-batch is planned from the offsets in the checkpoint alone, and what was lost is said."""

from __future__ import annotations

from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.micro_batches import ranges_between
from raylog.raydp_bridge.offset_ranges import OffsetRange

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_each_partition_is_read_from_start_to_end_and_empty_ones_not_at_all() -> None:
    ranges, losses = ranges_between({A0: 5, A1: 7, B0: 0}, {A0: 9, A1: 7, B0: 1}, {})
    assert ranges == [OffsetRange("a", 0, 5, 9), OffsetRange("b", 0, 0, 1)]
    assert losses == []


def test_large_ranges_are_split_for_the_tasks_wanted() -> None:
    ranges, _ = ranges_between({A0: 0}, {A0: 10}, {}, min_partitions=3)
    assert [(each.start_offset, each.end_offset) for each in ranges] == [(0, 3), (3, 6), (6, 10)]


def test_added_partitions_are_read_from_their_earliest_offset() -> None:
    assert ranges_between({A0: 5}, {A0: 5, A1: 3}, {A1: 0}) == ([OffsetRange("a", 1, 0, 3)], [])
    ranges, losses = ranges_between({A0: 5}, {A0: 5, A1: 3}, {A1: 2})
    assert ranges == [OffsetRange("a", 1, 2, 3)]
    assert losses == ["the added partition a-1 starts at offset 2 instead of 0"]


def test_partitions_that_are_gone_or_shorter_are_losses_and_not_read() -> None:
    assert ranges_between({A0: 5, B0: 4}, {A0: 3}, {}) == (
        [],
        ["b-0 is gone", "the offset of a-0 was changed from 5 to 3"],
    )
    assert ranges_between({}, {A1: 3}, {}) == ([], ["a-1 is gone"])
