"""The check finds each lost and each duplicated record in its bucket, and calls nothing lost that may be unreported."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.audit import checking
from raylog.client.audit.checking import AuditResult, Checker, Finding
from raylog.client.audit.counting import Counts
from raylog.client.audit.reports import LOG, PRODUCER, Count, Kind, Report, decode_report, encode_report
from raylog.client.audit.sequences import SEQUENCE_END, Segment
from raylog.client.audit.stamps import Stamp
from raylog.core.errors import KafkaError

CLIENT = bytes(range(16))
MINUTE = 60_000
START = 1_000 * MINUTE
NOW = START + 60 * MINUTE
GRACE = 5 * MINUTE


def counts_of(tier: str, reporter: bytes = b"r" * 16) -> Counts:
    return Counts(CLIENT if tier == PRODUCER else reporter, tier, bucket_ms=MINUTE, interval_ms=10_000)


def counted(tier: str, numbers: Iterable[int], kind: Kind | None = None, *, bucket_ms: int = START) -> Counts:
    counts = counts_of(tier)
    kind = kind if kind is not None else Kind.ACKNOWLEDGED if tier == PRODUCER else Kind.SEEN
    for number in numbers:
        counts.count(kind, "t", Stamp(CLIENT, number, bucket_ms))
    return counts


def checked(*given: Counts, **options: Any) -> AuditResult:
    """Each has ended, and reported half an hour after the start."""
    checker = Checker(**{"grace_ms": GRACE, **options})
    for counts in given:
        add(checker, counts.take(is_last=True, until_ms=START + 30 * MINUTE), START + 30 * MINUTE)
    return checker.check(NOW)


def add(checker: Checker, reports: Iterable[Report], received_ms: int) -> None:
    for report in reports:
        checker.add(decode_report(encode_report(report)), received_ms)


def findings(result: AuditResult) -> dict[str, dict[Finding, list[tuple[int, int]]]]:
    """By tier; of all buckets."""
    found: dict[str, dict[Finding, list[tuple[int, int]]]] = {}
    for verdict in result.verdicts:
        for finding, numbers in verdict.findings.items():
            ranges = [(start, end) for start, end, _ in numbers.ranges]
            found.setdefault(verdict.tier, {}).setdefault(finding, []).extend(ranges)
    return found


def test_one_lost_and_one_duplicated_record_in_a_million_are_found_in_their_buckets() -> None:
    """Three readers of a group read ten partitions each, by batches of 50 records."""
    total, per_bucket, lost, twice = 1_000_000, 90_000, 654_321, 345_678

    def stamp(number: int) -> Stamp:
        return Stamp(CLIENT, number, START + number // per_bucket * MINUTE)

    producer = counts_of(PRODUCER)
    readers = [counts_of("billing", bytes([index]) * 16) for index in range(3)]
    checker = Checker(grace_ms=GRACE)
    size_bytes = 0

    def report(counts: Counts, received_ms: int, *, is_last: bool = False) -> None:
        nonlocal size_bytes
        for each in counts.take(is_last=is_last):
            encoded = encode_report(each)
            size_bytes += len(encoded)
            checker.add(decode_report(encoded), received_ms)

    for first in range(0, total, 10_000):
        numbers = range(first, first + 10_000)
        for number in numbers:
            producer.count(Kind.ACKNOWLEDGED, "t", stamp(number))
        for batch in range(30):
            reader = readers[batch % 3]
            for number in (
                each
                for run in range(first + 50 * batch, first + 10_000, 1_500)
                for each in numbers[run - first : run - first + 50]
            ):
                if number != lost:
                    reader.count(Kind.SEEN, "t", stamp(number))
                if number == twice:
                    reader.count(Kind.SEEN, "t", stamp(number))
        for counts in (producer, *readers):
            report(counts, START + first // per_bucket * MINUTE + 5_000)
    for counts in (producer, *readers):
        report(counts, START + 12 * MINUTE, is_last=True)
    result = checker.check(NOW)
    said = [
        (verdict.bucket_ms, verdict.tier, finding, [(start, end) for start, end, _ in numbers.ranges])
        for verdict in result.verdicts
        for finding, numbers in verdict.findings.items()
    ]
    assert said == [
        (START + twice // per_bucket * MINUTE, "billing", Finding.DUPLICATED, [(twice, twice + 1)]),
        (START + lost // per_bucket * MINUTE, "billing", Finding.LOST, [(lost, lost + 1)]),
    ]
    assert sum(verdict.counted for verdict in result.verdicts) == total + total - 1
    assert size_bytes < total


def test_nothing_is_said_of_records_that_arrive_once() -> None:
    result = checked(counted(PRODUCER, range(9)), counted(LOG, range(9)), counted("billing", range(9)))
    assert findings(result) == {}
    assert [verdict.counted for verdict in result.verdicts] == [9, 9, 9]


def test_lost_in_the_log_and_between_log_and_reader() -> None:
    result = checked(counted(PRODUCER, range(9)), counted(LOG, [0, 1, 2, 5, 6, 7, 8]), counted("billing", range(3)))
    assert findings(result) == {LOG: {Finding.LOST: [(3, 5)]}, "billing": {Finding.LOST: [(3, 9)]}}
    assert result.lost == 8


def test_records_that_failed_or_were_aborted_are_not_lost() -> None:
    failed = counted(PRODUCER, range(9))
    failed.count(Kind.FAILED, "t", Stamp(CLIENT, 9, START))
    failed.count(Kind.FAILED, "t", Stamp(CLIENT, 10, START))
    log = counted(LOG, [*range(5), 10])
    for number in range(5, 9):
        log.count(Kind.ABORTED, "t", Stamp(CLIENT, number, START))
    result = checked(failed, log, counted("billing", range(5)))
    assert findings(result) == {
        LOG: {Finding.ABORTED: [(5, 9)]},
        "billing": {Finding.ABORTED: [(5, 9)], Finding.LOST: [(10, 11)]},
    }


def test_a_record_twice_in_the_log_is_duplicated_and_one_given_twice_is_redelivered() -> None:
    log = counted(LOG, [0, 1, 1, 2])
    result = checked(counted(PRODUCER, range(3)), log, counted("billing", [0, 0, 0, 1, 1, 2]))
    assert findings(result) == {
        LOG: {Finding.DUPLICATED: [(1, 2)]},
        "billing": {Finding.DUPLICATED: [(1, 2)], Finding.REDELIVERED: [(0, 1)]},
    }
    (_, _, billing) = result.verdicts
    assert billing.findings[Finding.REDELIVERED].ranges == [Segment(0, 1, 2)]
    assert billing.findings[Finding.REDELIVERED].count == 2


def test_without_the_log_only_the_reader_knows_what_was_redelivered() -> None:
    reader = counted("billing", [0, 1, 1, 2])
    reader.count(Kind.REDELIVERED, "t", Stamp(CLIENT, 2, START))
    result = checked(counted(PRODUCER, range(3)), reader)
    assert findings(result) == {"billing": {Finding.DUPLICATED: [(1, 2)], Finding.REDELIVERED: [(2, 3)]}}


def test_a_producer_that_crashed_before_its_report() -> None:
    """What later tiers have is unreported; between them it can be lost."""
    log, reader = counted(LOG, range(5)), counted("billing", range(4))
    assert findings(checked(log, reader)) == {
        PRODUCER: {Finding.UNREPORTED: [(0, 5)]},
        "billing": {Finding.LOST: [(4, 5)]},
    }


class TestWhatIsMissing:
    """... is lost in closed buckets of tiers with complete reports only."""

    def missing(self, checker: Checker, now_ms: int = NOW) -> set[Finding]:
        return {finding for each in checker.check(now_ms).verdicts for finding in each.findings}

    def checker(self, received_ms: int = START + 30 * MINUTE, **options: Any) -> Checker:
        checker = Checker(**{"grace_ms": GRACE, **options})
        add(checker, counted(PRODUCER, range(9)).take(is_last=True), received_ms)
        return checker

    def test_pending_until_the_grace_is_over(self) -> None:
        checker = self.checker()
        add(checker, counted("billing", range(5)).take(is_last=True), NOW)
        assert self.missing(checker, START + MINUTE + GRACE - 1) == {Finding.PENDING}
        assert self.missing(checker, START + MINUTE + GRACE) == {Finding.LOST}

    def test_a_late_report_settles_it(self) -> None:
        checker = self.checker()
        counts = counted("billing", range(5))
        add(checker, counts.take(), START + 5 * MINUTE)
        add(checker, counts.take(is_last=True), START + 30 * MINUTE)
        assert self.missing(checker) == {Finding.LOST}
        add(checker, counted_by("late", range(5, 9)).take(is_last=True), START + 40 * MINUTE)
        assert self.missing(checker) == set()

    def test_a_reader_that_crashed(self) -> None:
        """Its silence covers the buckets around its last report."""
        checker = self.checker()
        add(checker, counted("billing", range(5)).take(), START + 30_000)
        add(checker, counted_by("other", ()).take(is_last=True), START + 30 * MINUTE)
        assert self.missing(checker) == {Finding.UNREPORTED}

    def test_a_reader_that_crashed_much_later_excuses_nothing(self) -> None:
        checker = self.checker()
        counts = counted("billing", range(5))
        add(checker, counts.take(), START + 30_000)
        add(checker, counts.take(), START + 30 * MINUTE)
        assert self.missing(checker) == {Finding.LOST}

    def test_a_report_that_is_missing(self) -> None:
        checker = self.checker()
        counts = counted("billing", range(5))
        reports = [*counts.take(), *counts.take(), *counts.take(is_last=True)]
        add(checker, reports[:1], START + 10_000)
        add(checker, reports[2:], START + 30 * MINUTE)
        assert self.missing(checker) == {Finding.UNREPORTED}
        add(checker, reports[1:2], START + 20_000)
        assert self.missing(checker) == {Finding.LOST}

    @pytest.mark.parametrize("lost", [1, 2])
    def test_the_first_reports_are_missing(self, lost: int) -> None:
        checker = self.checker()
        counts = counts_of("billing")
        reports = []
        for number in range(3):
            counts.count(Kind.SEEN, "t", Stamp(CLIENT, number, START))
            reports += counts.take()
        reports += counts.take(is_last=True)
        add(checker, reports[lost:-1], START + 20_000)
        add(checker, reports[-1:], START + 30 * MINUTE)
        assert self.missing(checker) == {Finding.UNREPORTED}
        add(checker, reports[:lost], START + 20_000)
        assert self.missing(checker) == {Finding.LOST}

    def test_a_log_that_was_read_before_the_last_record_was_acknowledged(self) -> None:
        """Which was stamped at the end of its bucket, and appended after it."""
        checker = self.checker(received_ms=START + 70_000)
        add(checker, counted(LOG, range(8)).take(is_last=True, until_ms=START + 61_000), START + 62_000)
        assert self.missing(checker) == {Finding.UNREPORTED}
        later = Counts(b"l" * 16, LOG, bucket_ms=MINUTE, interval_ms=1, topics=("t",))
        add(checker, later.take(is_last=True, until_ms=START + 70_000), START + 2 * MINUTE)
        assert self.missing(checker) == {Finding.LOST}

    def test_a_group_that_has_stopped_before_the_bucket_has_ended(self) -> None:
        checker = self.checker()
        add(checker, counted("billing", range(5)).take(is_last=True), START + 30_000)
        assert self.missing(checker) == {Finding.UNREPORTED}

    def test_a_producer_that_has_ended_before_its_bucket(self) -> None:
        checker = self.checker(received_ms=START + 10_000)
        add(checker, counted("billing", range(5)).take(is_last=True), START + 30_000)
        assert self.missing(checker) == {Finding.LOST}

    def test_a_log_that_was_read_before_the_bucket_has_ended(self) -> None:
        checker = self.checker()
        add(checker, counted(LOG, range(5)).take(is_last=True, until_ms=START + 30_000), START + 40 * MINUTE)
        assert self.missing(checker) == {Finding.UNREPORTED}

    def test_a_log_whose_reading_was_interrupted(self) -> None:
        """Reports before the last one do not tell how far the log was read."""
        checker = self.checker()
        add(checker, counted(LOG, range(5)).take(is_last=True), START + 30 * MINUTE)
        assert self.missing(checker) == {Finding.UNREPORTED}

    @pytest.mark.parametrize("parts", [1, 2])
    def test_records_that_were_deleted_before_the_log_was_read(self, parts: int) -> None:
        """In whatever number of reports the rest of the run is."""
        checker = self.checker()
        add(checker, counted(LOG, range(5)).take(is_last=True, until_ms=START + 20_000), START + MINUTE)
        later = counts_of(LOG, b"l" * 16)
        later.leave_out()
        for number in range(20, 20 + parts):
            later.count(Kind.SEEN, "t", Stamp(CLIENT, number, START + 5 * MINUTE))
            is_last = number == 19 + parts
            reports = later.take(is_last=is_last, until_ms=START + 40 * MINUTE if is_last else None)
            add(checker, reports, START + 40 * MINUTE)
        assert self.missing(checker) == {Finding.UNREPORTED}

    @pytest.mark.parametrize(("read", "finding"), [("t", Finding.LOST), ("u", Finding.UNREPORTED)])
    def test_a_log_in_which_nothing_was_found(self, read: str, finding: Finding) -> None:
        """It says something of the topic that was read, and of no other."""
        checker = self.checker()
        add(checker, counted(LOG, range(5)).take(is_last=True, until_ms=START + 20_000), START + MINUTE)
        empty = Counts(b"l" * 16, LOG, bucket_ms=MINUTE, interval_ms=1, topics=(read,))
        add(checker, empty.take(is_last=True, until_ms=START + 40 * MINUTE), START + 40 * MINUTE)
        assert self.missing(checker) == {finding}

    def test_a_tier_before_its_first_bucket(self) -> None:
        """Nothing is said without a time to begin at."""
        for options, said in ({}, {}), ({"from_ms": START}, {"billing": {Finding.LOST: [(0, 9)]}}):
            given = counted(PRODUCER, range(9)), counted("billing", [9], bucket_ms=START + MINUTE)
            unreported = {PRODUCER: {Finding.UNREPORTED: [(9, 10)]}}
            assert findings(checked(*given, **options)) == unreported | said

    def test_a_bucket_from_the_future(self) -> None:
        """The producer's clock has jumped by a thousand years; the bucket closes its length after its report."""
        future = START + 500_000_000 * MINUTE
        result = checked(counted(PRODUCER, range(9), bucket_ms=future), counted("billing", [1], bucket_ms=future))
        assert findings(result) == {"billing": {Finding.LOST: [(0, 1), (2, 9)]}}

    def test_another_topic_and_another_time_are_left_out(self) -> None:
        producer, reader = counted(PRODUCER, range(9)), counted("billing", [1])
        for options in ({"topics": ["other"]}, {"from_ms": START + 1}, {"to_ms": START}):
            assert checked(producer, reader, **options).verdicts == []


def counted_by(name: str, numbers: Iterable[int]) -> Counts:
    counts = counts_of("billing", name.encode().ljust(16))
    for number in numbers:
        counts.count(Kind.SEEN, "t", Stamp(CLIENT, number, START))
    return counts


def test_unstamped_records_are_counted_by_tier_and_bucket() -> None:
    counts = counts_of("billing")
    for number in range(5):
        counts.count_unstamped("t", START + number * 20_000)
    found = [(each.topic, each.bucket_ms, each.tier, each.count) for each in checked(counts).unstamped]
    assert found == [("t", START, "billing", 3), ("t", START + MINUTE, "billing", 2)]


def test_absurd_claims_take_no_memory() -> None:
    """A producer claims all numbers, a thousand times, and a reader every second one of a few."""
    claim = counts_of(PRODUCER)
    checker = Checker(grace_ms=0)
    for _ in range(1_000):
        (empty,) = claim.take()
        whole = Count(Kind.ACKNOWLEDGED, "t", CLIENT, START, (Segment(0, SEQUENCE_END, 1),))
        add(checker, [replace(empty, counts=(whole,))], START)
    add(checker, counted("billing", range(0, 1_000, 2)).take(is_last=True), NOW)
    (producer, billing) = checker.check(NOW).verdicts
    assert producer.counted == SEQUENCE_END
    lost = billing.findings[Finding.LOST]
    assert lost.count == SEQUENCE_END - 500
    assert (len(lost.ranges), lost.range_count) == (checking.RANGES_SHOWN_MAX, 500)


def add_reports(checker: Checker, counts: Counts, number: int) -> None:
    for _ in range(number):
        add(checker, counts.take(), START)


def test_more_than_a_check_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "CELLS_MAX", 100)
    monkeypatch.setattr(checking, "HELD_MAX", 1_000)
    for ranges, instances, topics, reports in (0, 200, 1, 1), (2_000, 1, 1, 1), (0, 1, 2_000, 1), (0, 1, 1, 2_000):
        checker = Checker(grace_ms=GRACE, to_ms=START if topics > 1 else None)
        counts = counts_of("billing")
        for number in range(ranges):
            counts.count(Kind.SEEN, "t", Stamp(CLIENT, 2 * number, START))
        for number in range(instances):
            for topic in range(topics):
                counts.count(Kind.SEEN, f"t{topic}", Stamp(number.to_bytes(16, "big"), 0, START))
        with pytest.raises(KafkaError, match="check fewer topics"):
            add_reports(checker, counts, reports + 1)


# --- against a multiset

PLANS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1 << 32),
        "count": st.integers(0, 30),
        "has_log": st.booleans(),
        "producer_crashes": st.booleans(),
        "reader_crashes": st.booleans(),
    }
)


@given(PLANS)
def test_random_flows_are_judged_as_by_a_multiset(plan: dict[str, Any]) -> None:
    """Records are lost, duplicated, redelivered and aborted at random; reports are late, repeated, and stop."""
    rng = random.Random(plan["seed"])
    machines = {PRODUCER: [counts_of(PRODUCER)], LOG: [counts_of(LOG)]}
    machines["billing"] = [counts_of("billing", bytes([index]) * 16) for index in range(2)]
    known: dict[tuple[str, Kind], Counter[int]] = {}
    sent: list[tuple[Report, int]] = []
    ended = {(tier, index): True for tier, many in machines.items() for index in range(len(many))}
    ended[PRODUCER, 0] = not plan["producer_crashes"]
    ended["billing", 1] = not plan["reader_crashes"]

    def count(tier: str, kind: Kind, number: int) -> None:
        rng.choice(machines[tier]).count(kind, "t", Stamp(CLIENT, number, START + number // 10 * MINUTE))

    for number in range(plan["count"]):
        acknowledged = rng.random() < 0.8
        count(PRODUCER, Kind.ACKNOWLEDGED if acknowledged else Kind.FAILED, number)
        for tier, kind, weights in (
            (LOG, Kind.SEEN, (2, 8, 1)),
            (LOG, Kind.ABORTED, (8, 1)),
            ("billing", Kind.SEEN, (2, 8, 1, 1)),
            ("billing", Kind.REDELIVERED, (8, 1)),
        ):
            if tier == LOG and not plan["has_log"]:
                continue
            for _ in range(rng.choices(range(len(weights)), weights)[0]):
                count(tier, kind, number)
        if rng.random() < 0.2:
            _report(rng.choice(machines[rng.choice(list(machines))]), sent, START + 30_000)
    for (tier, index), is_last in ended.items():
        if is_last:
            _report(machines[tier][index], sent, START + 30 * MINUTE, is_last=True)
    for report, _ in sent:
        for each in report.counts:
            for start, end, times in each.segments:
                known.setdefault((report.tier, each.kind), Counter()).update(dict.fromkeys(range(start, end), times))
    repeated = sent + rng.sample(sent, len(sent) // 2)
    rng.shuffle(repeated)
    checker = Checker(grace_ms=GRACE, from_ms=START)
    for report, received_ms in repeated:
        checker.add(decode_report(encode_report(report)), received_ms)
    said = Counter[tuple[str, Finding, int]]()
    for verdict in checker.check(NOW).verdicts:
        for finding, numbers in verdict.findings.items():
            for start, end, times in numbers.ranges:
                said.update({(verdict.tier, finding, number): times for number in range(start, end)})
    silent = not ended["billing", 1] and any(report.reporter == bytes([1]) * 16 for report, _ in sent)
    assert said == _expected(plan["count"], known, silent_before=20 if silent else 0)


def _report(counts: Counts, sent: list[tuple[Report, int]], received_ms: int, *, is_last: bool = False) -> None:
    sent += [(report, received_ms) for report in counts.take(is_last=is_last, until_ms=received_ms)]


def _expected(
    count: int, known: dict[tuple[str, Kind], Counter[int]], *, silent_before: int
) -> Counter[tuple[str, Finding, int]]:
    """What is to be said of each number by itself. A reader is silent in the buckets of the first numbers."""
    expected = Counter[tuple[str, Finding, int]]()
    tiers = {tier for tier, _ in known}
    for number in range(count):
        acked, failed, stored, aborted, seen, again = (
            known.get(key, Counter())[number]
            for key in (
                (PRODUCER, Kind.ACKNOWLEDGED),
                (PRODUCER, Kind.FAILED),
                (LOG, Kind.SEEN),
                (LOG, Kind.ABORTED),
                ("billing", Kind.SEEN),
                ("billing", Kind.REDELIVERED),
            )
        )
        if not acked and not failed and stored + aborted + seen + again:
            expected[PRODUCER, Finding.UNREPORTED, number] = 1
        if LOG in tiers:
            if stored == 0 and (aborted or acked):
                expected[LOG, Finding.ABORTED if aborted else Finding.LOST, number] = 1
            elif stored > 1:
                expected[LOG, Finding.DUPLICATED, number] = stored - 1
        if "billing" not in tiers:
            continue
        given_ = seen + again
        if given_ == 0:
            if aborted and not stored:
                expected["billing", Finding.ABORTED, number] = 1
            elif acked or stored:
                finding = Finding.UNREPORTED if number < silent_before else Finding.LOST
                expected["billing", finding, number] = 1
        else:
            copies = stored + aborted
            twice = min(given_, copies) - 1 if copies else max(0, seen - 1)
            expected["billing", Finding.DUPLICATED, number] += twice
            expected["billing", Finding.REDELIVERED, number] += given_ - 1 - twice
    return +expected
