"""Browsing shows what was asked for, and going on from its positions shows every record once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.console import browsing
from raylog.console.browsing import AT_END, Scan, Wanted, matches, starts
from raylog.console.fields import Fields
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BOUNDS = {A: (10, 1_000), B: (0, 20)}


def wanted(**given: Any) -> Wanted:
    return Wanted.of(Fields({"topic": "t", **given}))


def record(
    tp: TopicPartition, offset: int, *, time_ms: int = 0, key: bytes = b"k", value: bytes = b"v"
) -> ConsumerRecord:
    return ConsumerRecord(tp.topic, tp.partition, offset, time_ms, 0, key, value, ())


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {A: 950, B: 0}),
        ({"count": "5"}, {A: 995, B: 15}),
        ({"from": "earliest"}, {A: 10, B: 0}),
        ({"from": "offset", "at": "15"}, {A: 15, B: 15}),
        ({"from": "offset", "at": str(10**18)}, {A: 1_000, B: 20}),
        ({"from": "time", "at": "5"}, {A: 700, B: 20}),
        ({"from": "positions", "positions": "0:12,1:3,7:9"}, {A: 12, B: 3}),
        ({"from": "positions", "positions": "0:-1,1:3"}, {A: 1_000, B: 3}),
        ({"from": "positions", "positions": "1:3"}, {A: 10, B: 3}),
        ({"from": "positions"}, {A: 1_000, B: 20}),
        ({"key": "k"}, {A: 10, B: 0}),
    ],
)
def test_where_reading_begins(given: dict[str, str], found: dict[TopicPartition, int]) -> None:
    assert starts(wanted(**given), BOUNDS, {A: 700}) == found


def test_the_newest_of_many_partitions_are_few_of_each() -> None:
    bounds = {TopicPartition("t", number): (0, 10_000) for number in range(10_000)}
    assert set(starts(wanted(count=500), bounds, {}).values()) == {9_999}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": ""}, "topic: must be given"),
        ({"from": "middle"}, "from='middle': must be one of"),
        ({"from": "offset"}, "at: must be given"),
        ({"from": "offset", "at": "-5"}, "at='-5': must be a whole number"),
        ({"count": 501}, "count=501: must be a whole number between 1 and 500"),
        ({"from": "positions", "positions": "a:1"}, "partition='a': must be a whole number"),
        ({"from": "positions", "positions": "1"}, "offset: must be given"),
        ({"from": "positions", "positions": "1:-2"}, "offset='-2': must be a whole number"),
        ({"key": "0xabc"}, "key='0xabc': must be pairs of hexadecimal digits"),
        ({"partition": str(1 << 40)}, "partition="),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        wanted(**given)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("given", "key", "value", "found"),
    [
        ({}, b"", b"", True),
        ({"key": "order-1"}, b"order-1", b"", True),
        ({"key": "order-1"}, b"order-12", b"", False),
        ({"key": "0x00ff"}, b"\x00\xff", b"", True),
        ({"contains": "PAID"}, b"", b'{"state": "paid"}', True),
        ({"contains": "paid"}, b"prepaid", b"", True),
        ({"contains": "paid"}, b"", b"open", False),
        ({"key": "a", "contains": "b"}, b"a", b"c", False),
    ],
)
def test_what_matches(given: dict[str, str], key: bytes, value: bytes, found: bool) -> None:
    assert matches(record(A, 0, key=key, value=value), wanted(**given)) is found


def test_a_null_key_or_value_matches_only_where_nothing_is_asked_for() -> None:
    null = record(A, 0)._replace(key=None, value=None)
    assert matches(null, wanted())
    assert not matches(null, wanted(key="k"))
    assert not matches(null, wanted(contains="v"))


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 3)), max_size=60),
    st.integers(1, 7),
    st.sampled_from(["", "x"]),
)
def test_going_on_shows_every_record_once(order: list[tuple[TopicPartition, int]], count: int, contains: str) -> None:
    log: list[ConsumerRecord] = []
    ends = {A: 0, B: 0}
    for tp, kind in order:
        log.append(record(tp, ends[tp], value=b"x" if kind else b"y"))
        ends[tp] += 1
    positions = {A: 0, B: 0}
    found: list[ConsumerRecord] = []
    for _ in range(len(log) + 1):
        asked = wanted(**{"from": "positions", "positions": "0:0", "count": count, "contains": contains})
        scan = Scan(asked, dict(positions), ends)
        for each in log:
            if each.offset >= positions[TopicPartition(each.topic, each.partition)] and not scan.take(each):
                break
        found += scan.shown()
        assert len(scan.found) <= count
        positions = scan.positions
        if scan.is_complete:
            break
    assert positions == ends
    wanted_records = [each for each in log if not contains or each.value == b"x"]
    assert sorted(found) == sorted(wanted_records)


def test_a_partition_without_offsets_stays_where_it_was() -> None:
    """Its broker may be down: what is written there meanwhile is shown later."""
    asked = wanted(**{"from": "positions", "positions": "0:12,1:3"})
    scan = Scan(asked, {A: 15}, {A: 20})
    assert scan.positions_of([A, B, TopicPartition("t", 2)]) == {0: 15, 1: 3, 2: AT_END}


def test_the_newest_of_all_partitions_are_shown_first() -> None:
    scan = Scan(wanted(count=2), {A: 0, B: 0}, {A: 3, B: 2})
    for tp, offset, time_ms in ((A, 0, 1), (A, 1, 5), (A, 2, 2), (B, 0, 4), (B, 1, 3)):
        assert scan.take(record(tp, offset, time_ms=time_ms))
    assert scan.is_complete
    assert [each.timestamp_ms for each in scan.shown()] == [5, 4]


def test_the_newest_are_shown_also_if_the_records_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "BYTES_MAX", 25)
    scan = Scan(wanted(), {A: 0, B: 0}, {A: 5, B: 1})
    for offset in range(5):
        assert scan.take(record(A, offset, time_ms=10 * offset, value=b"x" * 9))
    assert scan.take(record(B, 0, time_ms=5))  # older than records that were dropped
    assert scan.is_complete
    assert [each.offset for each in scan.shown()] == [4, 3]
    assert scan.size_bytes == 20


def test_one_record_is_shown_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "BYTES_MAX", 25)
    scan = Scan(wanted(), {A: 0}, {A: 1})
    scan.take(record(A, 0, value=b"x" * 100))
    assert len(scan.shown()) == 1


def test_headers_count_for_the_size_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "BYTES_MAX", 25)
    scan = Scan(wanted(**{"from": "earliest"}), {A: 0}, {A: 9})
    headers = (("x" * 20, None), ("h", b"value"))
    assert [scan.take(record(A, offset)._replace(headers=headers)) for offset in range(2)] == [True, False]
    assert scan.size_bytes == 28


def test_a_request_looks_through_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "SCANNED_MAX", 3)
    scan = Scan(wanted(**{"from": "earliest", "key": "none"}), {A: 0}, {A: 9})
    assert [scan.take(record(A, offset)) for offset in range(5)] == [True, True, True, False, False]
    assert scan.positions == {A: 3}
    monkeypatch.setattr(browsing, "SCANNED_MAX", 1_000)
    monkeypatch.setattr(browsing, "BYTES_MAX", 25)
    large = Scan(wanted(**{"from": "earliest"}), {A: 0}, {A: 9})
    assert [large.take(record(A, offset, value=b"x" * 9)) for offset in range(4)] == [True, True, True, False]
