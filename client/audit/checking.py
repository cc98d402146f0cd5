"""Compares what the tiers have counted, and tells lost from duplicated records, and both from what is not known. Pure.

Expected at the log is what producers saw acknowledged; expected at a reader is that, and what the log has. What is
missing is lost only in a bucket that is closed, at a tier whose reports are complete for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final

from raylog.client.audit.reports import LOG, PRODUCER, Kind, Report
from raylog.client.audit.sequences import Segment, SequenceCounts, sweep
from raylog.core.errors import ErrorCode, KafkaError

CELLS_MAX: Final = 200_000
HELD_MAX: Final = 5_000_000
"""Most combinations of topic, producer and bucket, and most reports and ranges, in one check."""
RANGES_SHOWN_MAX: Final = 100
SILENT_INTERVALS: Final = 3
"""A reporter that does not report for so many of its intervals has ended without its last counts."""
BUCKET_MS: Final = 60_000
"""Where the producer has not reported how long its buckets are."""


class Finding(StrEnum):
    """What is said of sequence numbers at a tier."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    """More than once in the log, or given to a reader more often than the log has them, for no known reason."""
    REDELIVERED = "redelivered"
    """Given to readers again, as after a rebalance: once in the log, or at an offset that was passed before."""
    ABORTED = "aborted"
    """Of aborted transactions only."""
    UNREPORTED = "unreported"
    """Not counted, where a producer or reader may have ended before it reported its last counts."""
    PENDING = "pending"
    """Not counted yet, in a bucket that is still open."""


@dataclass(slots=True)
class Numbers:
    """Sequence numbers that share a finding."""

    count: int = 0
    """With repetitions: a record that is there three times is duplicated twice."""
    ranges: list[Segment] = field(default_factory=list)
    """The first RANGES_SHOWN_MAX; `times` is how often too much a number was counted, and 1 for missing ones."""
    range_count: int = 0

    def add(self, start: int, end: int, times: int) -> None:
        self.count += (end - start) * times
        last = self.ranges[-1] if self.ranges else None
        if last is not None and self.range_count == len(self.ranges) and (last.end, last.times) == (start, times):
            self.ranges[-1] = Segment(last.start, end, times)
            return
        self.range_count += 1
        if len(self.ranges) < RANGES_SHOWN_MAX:
            self.ranges.append(Segment(start, end, times))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a tier has counted of one producer's records of a topic in a bucket."""

    topic: str
    client: bytes
    bucket_ms: int
    tier: str
    counted: int
    """Different records."""
    findings: dict[Finding, Numbers]


@dataclass(frozen=True, slots=True)
class UnstampedRecords:
    topic: str
    bucket_ms: int
    tier: str
    count: int


@dataclass(frozen=True, slots=True)
class AuditResult:
    verdicts: list[Verdict]
    unstamped: list[UnstampedRecords]

    @property
    def lost(self) -> int:
        return sum(each.findings[Finding.LOST].count for each in self.verdicts if Finding.LOST in each.findings)


@dataclass(slots=True)
class _Reporter:
    tier: str
    interval_ms: int
    reports: dict[int, int] = field(default_factory=dict)
    """By number, up to when counts are complete."""
    has_ended: bool = False
    """Whether its last report is there."""
    has_counted: bool = False
    topics: set[str] = field(default_factory=set)
    """Those that it has counted or read, of the ones that are checked."""

    @property
    def may_count_any(self) -> bool:
        """Whether it may be one of the topic, of which it has counted nothing: a run over the log names its topic."""
        return self.tier != LOG and not self.has_counted

    @property
    def until_ms(self) -> int:
        return max(self.reports.values())

    def silences(self) -> Iterator[tuple[int, int]]:
        """(from, to) of times in which it may have counted what it has not reported."""
        numbers = sorted(self.reports)
        if numbers[0] > 0:  # the first ones are missing, or were deleted
            yield 0, self.until_ms if self.tier == LOG else self.reports[numbers[0]]
        for number, following in pairwise(numbers):
            if following > number + 1:  # of a run over the log only the last report says up to when it has read
                yield self.reports[number], self.until_ms if self.tier == LOG else self.reports[following]
        if not self.has_ended:
            yield self.until_ms, self.until_ms + SILENT_INTERVALS * self.interval_ms


class _Coverage:
    """For which times the reports of a tier about a topic are complete."""

    def __init__(self, reporters: Iterable[_Reporter]) -> None:
        self._until_ms = 0
        silences = SequenceCounts()
        for reporter in reporters:
            self._until_ms = max(self._until_ms, reporter.until_ms)
            for from_ms, to_ms in reporter.silences():
                silences.add_range(from_ms, max(from_ms, to_ms) + 1)
        self._silences = silences.segments()

    def includes(self, start_ms: int, end_ms: int, *, grace_ms: int) -> bool:
        """Whether what was stamped between these times, and read at most `grace_ms` later, must have been reported."""
        if self._until_ms < end_ms:
            return False
        at = bisect_left(self._silences, start_ms, key=lambda silence: silence.end - 1)
        return at == len(self._silences) or self._silences[at].start > end_ms + grace_ms


@dataclass(slots=True)
class _Cell:
    first_reported_ms: int
    acknowledged_ms: int = 0
    """When the producer has last reported acknowledged records."""
    counts: dict[tuple[str, Kind], SequenceCounts] = field(default_factory=dict)


class Checker:
    """Takes the reports in any order, each as often as it was delivered, and then judges them."""

    def __init__(
        self,
        *,
        grace_ms: int,
        topics: Collection[str] = (),
        from_ms: int | None = None,
        to_ms: int | None = None,
    ) -> None:
        """Buckets are closed `grace_ms` after their end. Without `topics` all are checked.

        `from_ms` and `to_ms` limit the buckets, by their start. Without `from_ms` a tier is expected to have counted
        from the first bucket on in which it has counted anything of the topic.
        """
        self._grace_ms = grace_ms
        self._topics = frozenset(topics)
        self._from_ms = from_ms
        self._to_ms = to_ms
        self._reporters: dict[tuple[str, bytes], _Reporter] = {}
        self._cells: dict[tuple[str, bytes, int], _Cell] = {}
        self._unstamped: dict[tuple[str, int, str], int] = {}
        self._bucket_lengths: dict[bytes, int] = {}
        self._tiers: dict[str, dict[str, int]] = {}
        """Of each topic, the tiers besides that of producers, with the first bucket of each."""
        self._held = 0
        """The number of reports, topics of reporters, and ranges."""
        self._coverages: dict[tuple[str, str], _Coverage] = {}
        """By tier and topic, since the last report was added."""

    def add(self, report: Report, received_ms: int) -> None:
        """`received_ms` is the time of the report by the clock of the broker. Raises KafkaError if it is too much."""
        self._coverages.clear()
        key = report.tier, report.reporter
        reporter = self._reporters.get(key)
        if reporter is None:
            reporter = self._reporters[key] = _Reporter(report.tier, report.interval_ms)
        if report.number in reporter.reports:
            return
        self._check_size()
        reporter.reports[report.number] = _complete_until(report, received_ms)
        self._held += 1
        if report.is_last:
            reporter.has_ended = True
        if report.tier == PRODUCER:
            self._bucket_lengths[report.reporter] = report.bucket_ms
        for topic in (*report.topics, *(count.topic for count in report.counts)):
            if not self._topics or topic in self._topics:
                self._held += topic not in reporter.topics
                reporter.topics.add(topic)
        for count in report.counts:
            reporter.has_counted = True
            if not self._is_wanted(count.topic, count.bucket_ms):
                continue
            self._check_size()
            cell = self._cells.setdefault((count.topic, count.client, count.bucket_ms), _Cell(received_ms))
            cell.first_reported_ms = min(cell.first_reported_ms, received_ms)
            if count.kind is Kind.ACKNOWLEDGED:
                cell.acknowledged_ms = max(cell.acknowledged_ms, received_ms)
            counts = cell.counts.setdefault((report.tier, count.kind), SequenceCounts())
            for segment in count.segments:
                counts.add_range(*segment)
            self._held += len(count.segments)
            if report.tier != PRODUCER:
                tiers = self._tiers.setdefault(count.topic, {})
                tiers[report.tier] = min(tiers.get(report.tier, count.bucket_ms), count.bucket_ms)
        for unstamped in report.unstamped:
            if self._is_wanted(unstamped.topic, unstamped.bucket_ms):
                self._check_size()
                place = unstamped.topic, unstamped.bucket_ms, report.tier
                self._unstamped[place] = self._unstamped.get(place, 0) + unstamped.count

    def check(self, now_ms: int) -> AuditResult:
        """`now_ms` is the time by the clock of the broker."""
        verdicts = [
            verdict
            for (topic, client, bucket_ms), cell in sorted(self._cells.items(), key=lambda item: item[0])
            for verdict in self._check_cell(topic, client, bucket_ms, cell, now_ms)
        ]
        unstamped = [UnstampedRecords(*place, count) for place, count in sorted(self._unstamped.items())]
        return AuditResult(verdicts, unstamped)

    def _is_wanted(self, topic: str, bucket_ms: int) -> bool:
        return (
            (not self._topics or topic in self._topics)
            and (self._from_ms is None or bucket_ms >= self._from_ms)
            and (self._to_ms is None or bucket_ms < self._to_ms)
        )

    def _check_size(self) -> None:
        size = len(self._cells) + len(self._unstamped) + len(self._reporters)
        if size > CELLS_MAX or self._held > HELD_MAX:
            text = (
                f"more than {CELLS_MAX:,} combinations of topic, producer and bucket, or {HELD_MAX:,} reports and"
                " ranges: check fewer topics or a shorter time"
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def _check_cell(self, topic: str, client: bytes, bucket_ms: int, cell: _Cell, now_ms: int) -> list[Verdict]:
        tiers = self._tiers.get(topic, {})
        names = list(cell.counts)
        missing: dict[str, Finding | None] = {PRODUCER: self._unknown(client, bucket_ms, cell, now_ms)}
        for tier in tiers:
            missing[tier] = self._missing(tier, topic, client, bucket_ms, cell, now_ms)
        counted = dict.fromkeys(missing, 0)
        found: dict[str, dict[Finding, Numbers]] = {tier: {} for tier in missing}
        for start, end, times in sweep([cell.counts[name].segments() for name in names]):
            copies = dict(zip(names, times, strict=True))
            for tier, missing_is in missing.items():
                is_counted, findings = _judged(tier, copies, missing_is)
                counted[tier] += (end - start) * is_counted
                for finding, extra in findings:
                    found[tier].setdefault(finding, Numbers()).add(start, end, extra)
        return [Verdict(topic, client, bucket_ms, tier, counted[tier], found[tier]) for tier in missing]

    def _bucket_end(self, client: bytes, bucket_ms: int, cell: _Cell) -> int:
        """When no more records of the bucket are expected.

        A bucket from the future, of a clock that has jumped, ends its length after it was first reported.
        """
        length = self._bucket_lengths.get(client, BUCKET_MS)
        return min(bucket_ms, cell.first_reported_ms) + length

    def _unknown(self, client: bytes, bucket_ms: int, cell: _Cell, now_ms: int) -> Finding:
        """What records are that a later tier has, and the producer has not reported."""
        is_open = now_ms < self._bucket_end(client, bucket_ms, cell) + self._grace_ms
        return Finding.PENDING if is_open else Finding.UNREPORTED

    def _missing(
        self, tier: str, topic: str, client: bytes, bucket_ms: int, cell: _Cell, now_ms: int
    ) -> Finding | None:
        """What expected records are that the tier has not counted; None if it was not there yet."""
        if self._from_ms is None and bucket_ms < self._tiers[topic][tier]:
            return None
        end_ms = self._bucket_end(client, bucket_ms, cell)
        if now_ms < end_ms + self._grace_ms:
            return Finding.PENDING
        producer = self._reporters.get((PRODUCER, client))
        if producer is not None and producer.has_ended:
            end_ms = min(end_ms, producer.until_ms)
        if tier == LOG:  # what was acknowledged after the log was read may be behind what was read
            end_ms = max(end_ms, cell.acknowledged_ms)
        covered = self._coverage(tier, topic).includes(bucket_ms, end_ms, grace_ms=self._grace_ms)
        return Finding.LOST if covered else Finding.UNREPORTED

    def _coverage(self, tier: str, topic: str) -> _Coverage:
        found = self._coverages.get((tier, topic))
        if found is None:
            reporters = [each for each in self._reporters.values() if each.tier == tier]
            found = _Coverage(each for each in reporters if topic in each.topics or each.may_count_any)
            self._coverages[tier, topic] = found
        return found


def _complete_until(report: Report, received_ms: int) -> int:
    if report.until_ms is not None:
        return min(report.until_ms, received_ms)
    return 0 if report.tier == LOG else received_ms


def _judged(
    tier: str, copies: dict[tuple[str, Kind], int], missing: Finding | None
) -> tuple[bool, list[tuple[Finding, int]]]:
    """Whether the tier has counted sequence numbers of which the tiers have so many copies, and what is to be said."""
    acknowledged = copies.get((PRODUCER, Kind.ACKNOWLEDGED), 0) > 0
    stored = copies.get((LOG, Kind.SEEN), 0)
    aborted = copies.get((LOG, Kind.ABORTED), 0)
    if tier == PRODUCER:
        if acknowledged or copies.get((PRODUCER, Kind.FAILED)) or missing is None:
            return acknowledged, []
        return False, [(missing, 1)]
    again = 0 if tier == LOG else copies.get((tier, Kind.REDELIVERED), 0)
    counted = again + copies.get((tier, Kind.SEEN), 0)
    if not counted:
        if aborted and not stored:
            return False, [(Finding.ABORTED, 1)]
        return False, [(missing, 1)] if missing is not None and (acknowledged or stored) else []
    if tier == LOG:
        return True, [(Finding.DUPLICATED, counted - 1)] if counted > 1 else []
    kept = stored + aborted
    duplicated = min(counted, kept) - 1 if kept else max(0, counted - 1 - again)
    findings = [(Finding.DUPLICATED, duplicated), (Finding.REDELIVERED, counted - 1 - duplicated)]
    return True, [each for each in findings if each[1]]
