"""Lags add up, and offsets that are reset stay within their logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.admin.all_groups import GroupOffset
from raylog.client.admin.groups import GroupDescription, MemberDescription
from raylog.console.lag import WAYS, Lag, group_row, lags, new_offsets, total
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MEMBER = MemberDescription("m-1", None, "app", "10.0.0.1", (B, C), b"", b"")


def test_committed_and_owned_partitions_have_a_lag() -> None:
    found = lags({A: GroupOffset(5, None), B: GroupOffset(9, None)}, {A: 12, B: 7, C: 3}, MEMBER.partitions)
    assert found == {A: Lag(5, 12), B: Lag(9, 7), C: Lag(None, 3)}
    assert [each.records for each in found.values()] == [7, 0, None]
    assert total(found) == 7


def test_a_partition_without_a_known_end_has_no_lag() -> None:
    found = lags({A: GroupOffset(5, None)}, {})
    assert found[A].records is None
    assert total(found) == 0


def test_the_row_of_a_group_names_the_owner_of_each_partition() -> None:
    group = GroupDescription("g", "Stable", "consumer", "range", (MEMBER,), None)
    row = group_row(group, lags({A: GroupOffset(1, None)}, {A: 2, B: 3}, MEMBER.partitions))
    assert row["lag"] == 1
    assert [(each["topic"], each["partition"], each["member"]) for each in row["partitions"]] == [
        ("a", 0, None),
        ("a", 1, "m-1"),
        ("b", 0, "m-1"),
    ]
    assert row["members"][0]["partitions"] == 2


def test_records_of_a_share_group_are_counted_by_the_broker_and_belong_to_no_member() -> None:
    group = GroupDescription("g", "Stable", "share", "simple", (MEMBER,), None, "share")
    row = group_row(group, lags({B: GroupOffset(2, 3)}, {B: 9}, MEMBER.partitions))
    assert [(each["lag"], each["member"]) for each in row["partitions"]] == [(3, None), (None, None)]


@pytest.mark.parametrize(
    ("way", "at", "offset"),
    [
        ("earliest", 0, 10),
        ("latest", 0, 90),
        ("offset", 50, 50),
        ("offset", 5, 10),
        ("offset", 10**18, 90),
        ("time", 0, 33),
        ("shift", -5, 35),
        ("shift", -500, 10),
        ("shift", 500, 90),
    ],
)
def test_new_offsets(way: str, at: int, offset: int) -> None:
    assert new_offsets(way, at, {A: (10, 90)}, {A: 40}, {A: 33}) == {A: offset}


def test_a_time_behind_the_last_record_is_the_end() -> None:
    assert new_offsets("time", 0, {A: (10, 90)}, {}, {}) == {A: 90}


def test_only_committed_offsets_are_shifted() -> None:
    with pytest.raises(KafkaError, match="a-1: has no committed offset to shift"):
        new_offsets("shift", 1, {A: (0, 9), B: (0, 9)}, {A: 1}, {})


@given(
    st.sampled_from(list(WAYS)), st.integers(-(1 << 60), 1 << 60), st.integers(0, 99), st.integers(0, 99), st.integers()
)
def test_no_offset_leaves_the_log(way: str, at: int, first: int, count: int, committed: int) -> None:
    found = new_offsets(way, at, {A: (first, first + count)}, {A: committed}, {A: at})
    assert first <= found[A] <= first + count
