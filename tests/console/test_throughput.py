"""Rates are what was added between two looks, and never negative."""

from __future__ import annotations

from raylog.console.series import POINTS_MAX, Bounded, Series, pause_ms
from raylog.console.throughput import Look, Throughput
from raylog.core.ids import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_rates_by_topic_and_in_all() -> None:
    flow = Throughput()
    flow.add(Look(1_000, {A0: 10, A1: 0, B0: 5}, {A0: 1_000, A1: 0, B0: 0}))
    assert flow.shown() == {"points": [], "topics": [], "bytes_known": True}
    flow.add(Look(3_000, {A0: 30, A1: 10, B0: 5}, {A0: 3_000, A1: 500, B0: 0}))
    assert flow.shown() == {
        "points": [[3_000, 15.0, 1_250.0]],
        "topics": [{"name": "a", "records_per_sec": 15.0, "bytes_per_sec": 1_250.0}],
        "bytes_known": True,
    }


def test_a_partition_that_a_look_lacks_has_no_rate() -> None:
    flow = Throughput()
    flow.add(Look(1_000, {A0: 10}, {}))
    flow.add(Look(2_000, {A0: 11, B0: 1_000_000}, {}))
    flow.add(Look(3_000, {A0: 12}, {}))
    flow.add(Look(4_000, {A0: 13, B0: 2_000_000}, {}))
    assert [point[1] for point in flow.shown()["points"]] == [1.0, 1.0, 1.0]


def test_deleted_and_recreated_topics_and_retention_give_no_negative_rate() -> None:
    flow = Throughput()
    flow.add(Look(1_000, {A0: 1_000}, {A0: 5_000}))
    flow.add(Look(2_000, {A0: 0}, {A0: 10}))
    assert flow.shown()["points"] == [[2_000, 0.0, 0.0]]


def test_sizes_that_may_not_be_seen_are_unknown() -> None:
    flow = Throughput()
    flow.add(Look(1_000, {A0: 1}, None))
    flow.add(Look(2_000, {A0: 2}, None))
    assert not flow.shown()["bytes_known"]
    assert flow.shown()["points"] == [[2_000, 1.0, 0.0]]


def test_a_clock_that_jumps_back_adds_nothing() -> None:
    flow = Throughput()
    for time_ms in (2_000, 1_000, 2_000):
        flow.add(Look(time_ms, {A0: time_ms}, {}))
    assert flow.shown()["points"] == []


def test_a_series_is_bounded() -> None:
    series = Series()
    for number in range(POINTS_MAX + 10):
        series.add(number, float(number))
    series.add(3, 0.0)
    assert len(series.points) == POINTS_MAX
    assert series.shown()[0] == [10, 10.0]


def test_values_by_name_are_bounded() -> None:
    kept: Bounded[int] = Bounded(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert [kept.get(name) for name in "abc"] == [1, None, 3]


def test_slow_measurements_are_made_less_often() -> None:
    assert pause_ms(1) == 2_000
    assert pause_ms(900) == 9_000
