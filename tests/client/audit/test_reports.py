"""Stamps and reports are read as they were written; anything else is refused, and takes no memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.audit.counting import CELLS_MAX, RANGES_MAX, REPORTS_MAX, Counts
from raylog.client.audit.reports import (
    Count,
    Kind,
    MalformedReport,
    Report,
    Unstamped,
    decode_report,
    encode_report,
)
from raylog.client.audit.sequences import SEQUENCE_END, Segment
from raylog.client.audit.stamps import AUDIT_HEADER, STAMP_BYTES, Stamp, Stamper, read_stamp

CLIENT = bytes(range(16))
REPORT = Report(
    reporter=CLIENT,
    number=3,
    tier="billing",
    bucket_ms=60_000,
    interval_ms=10_000,
    is_last=False,
    until_ms=None,
    counts=(Count(Kind.SEEN, "t", CLIENT, 120_000, (Segment(0, 5, 1), Segment(5, 7, 2), Segment(9, 10, 1))),),
    unstamped=(Unstamped("t", 0, 4),),
)


def counts_of(reporter: bytes = CLIENT, tier: str = "billing") -> Counts:
    return Counts(reporter, tier, bucket_ms=60_000, interval_ms=10_000)


def by_number(report: Report) -> dict[Any, int]:
    return {
        (count.kind, count.topic, count.client, count.bucket_ms, sequence): times
        for count in report.counts
        for start, end, times in count.segments
        for sequence in range(start, end)
    }


def test_stamps() -> None:
    stamper = Stamper(CLIENT, 60_000)
    first = stamper.stamped("t", (), 150_000)
    second = stamper.stamped("t", {"a": b"1"}, 90_000)
    other = stamper.stamped("other", [("a", None), *first], -5)
    assert [name for name, _ in first] == [AUDIT_HEADER]
    assert [name for name, _ in second] == [name for name, _ in other] == ["a", AUDIT_HEADER]
    assert [read_stamp(each) for each in (first, second, other)] == [
        Stamp(CLIENT, 0, 120_000),
        Stamp(CLIENT, 1, 60_000),
        Stamp(CLIENT, 0, 0),
    ]
    assert len(first[0][1]) == STAMP_BYTES == 33


@given(st.lists(st.tuples(st.sampled_from([AUDIT_HEADER, "x"]), st.none() | st.binary(max_size=40) | st.text())))
def test_other_headers_are_no_stamps(headers: list[Any]) -> None:
    found = read_stamp(headers)
    assert found is None or (found.sequence >= 0 and found.bucket_ms >= 0)


@pytest.mark.parametrize("at", [0, 17, 25])
def test_a_stamp_with_a_negative_number_or_another_version_is_none(at: int) -> None:
    value = bytearray(Stamper(CLIENT, 1).stamped("t", (), 5)[0][1])
    value[at] = 0xFF
    assert read_stamp([(AUDIT_HEADER, bytes(value))]) is None
    assert read_stamp([(AUDIT_HEADER, bytes(value[:-1]))]) is None


def test_a_report_is_read_as_it_was_written() -> None:
    read = decode_report(encode_report(REPORT))
    assert by_number(read) == by_number(REPORT)
    assert (read.reporter, read.number, read.tier, read.unstamped) == (CLIENT, 3, "billing", REPORT.unstamped)


@given(st.data())
def test_truncated_and_altered_reports_are_refused_or_read(data: st.DataObject) -> None:
    encoded = bytearray(encode_report(REPORT))
    with pytest.raises(MalformedReport):
        decode_report(bytes(encoded[: data.draw(st.integers(0, len(encoded) - 1))]))
    for _ in range(3):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_report(bytes(encoded))
    except MalformedReport:
        pass


HUGE = SEQUENCE_END - 1


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"reporter": b"short"},
        {"number": -1},
        {"number": True},
        {"number": 1.0},
        {"tier": ""},
        {"tier": "x" * 250},
        {"tier": 7},
        {"bucket_ms": 0},
        {"bucket_ms": HUGE},
        {"interval_ms": HUGE},
        {"until_ms": -1},
        {"counts": 5},
        {"counts": [5]},
        {"counts": [[9, "t", CLIENT, 0, 1, []]]},
        {"counts": [[2, "t" * 250, CLIENT, 0, 1, []]]},
        {"counts": [[2, "t", CLIENT, -1, 1, []]]},
        {"counts": [[2, "t", CLIENT, 0, 0, []]]},
        {"counts": [[2, "t", CLIENT, 0, HUGE, []]]},
        {"counts": [[2, "t", CLIENT, 0, 1, [0]]]},
        {"counts": [[2, "t", CLIENT, 0, 1, [0, 0]]]},
        {"counts": [[2, "t", CLIENT, 0, 1, [-1, 1]]]},
        {"counts": [[2, "t", CLIENT, 0, 1, [HUGE, HUGE]]]},
        {"counts": [[2, "t", CLIENT, 0, 1, {}]]},
        {"unstamped": [["t", 0, 0]]},
        {"unstamped": [["t", 0]]},
        {"unstamped": None},
    ],
    ids=str,
)
def test_absurd_reports_are_refused(change: dict[str, Any]) -> None:
    fields = msgpack.unpackb(encode_report(REPORT))
    with pytest.raises(MalformedReport):
        decode_report(msgpack.packb(fields | change))


@pytest.mark.parametrize(
    "data",
    [None, b"", b"\xc1", b"\x91" * 500_000, b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\0" * (1 << 21)],
    ids=["null", "empty", "invalid", "nested", "map", "array", "huge"],
)
def test_hostile_bytes_are_refused_without_memory(data: bytes | None) -> None:
    tracemalloc.start()
    with pytest.raises(MalformedReport):
        decode_report(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_counts_are_taken_once_and_reports_numbered() -> None:
    counts = counts_of()
    counts.count(Kind.SEEN, "t", Stamp(CLIENT, 5, 60_000))
    counts.count(Kind.SEEN, "t", Stamp(CLIENT, 5, 60_000))
    counts.count(Kind.REDELIVERED, "t", Stamp(CLIENT, 5, 60_000))
    counts.count_unstamped("t", 61_000)
    counts.count_unstamped("t", -61_000)
    (first,) = counts.take()
    (second,) = counts.take(is_last=True)
    assert first.counts == (
        Count(Kind.SEEN, "t", CLIENT, 60_000, (Segment(5, 6, 2),)),
        Count(Kind.REDELIVERED, "t", CLIENT, 60_000, (Segment(5, 6, 1),)),
    )
    assert first.unstamped == (Unstamped("t", 60_000, 1), Unstamped("t", 0, 1))
    assert (first.number, second.number, second.counts, second.is_last) == (0, 1, (), True)


def test_memory_of_counts_is_bounded_and_each_report_fits_into_a_record() -> None:
    """Every record has another producer, then every second number is missing, and no report is sent."""
    counts = counts_of()
    for number in range(3 * CELLS_MAX):
        counts.count(Kind.SEEN, "t" * 249, Stamp(number.to_bytes(16, "big"), HUGE - number, number))
    for number in range(3 * RANGES_MAX):
        counts.count(Kind.SEEN, "t", Stamp(CLIENT, HUGE - 2 * number, 0))
    for number in range(3 * CELLS_MAX):
        counts.count_unstamped("t" * 249, number * 60_000)
    reports = counts.take()
    assert len(reports) >= 9
    for report in reports:
        assert len(report.counts) <= CELLS_MAX
        assert sum(len(count.segments) for count in report.counts) <= RANGES_MAX
        assert len(encode_report(report)) < 1_000_000
    assert sum(len(by_number(report)) for report in reports) == 3 * CELLS_MAX + 3 * RANGES_MAX
    assert [report.number for report in reports] == list(range(len(reports)))


def test_if_nobody_takes_the_reports_the_oldest_are_dropped_and_their_numbers_missing() -> None:
    counts = counts_of()
    for number in range((REPORTS_MAX + 10) * CELLS_MAX):
        counts.count_unstamped("t", number * 60_000)
    reports = counts.take()
    assert len(reports) == REPORTS_MAX
    assert reports[0].number == 10
