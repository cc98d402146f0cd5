"""The records of the audit topic: what a reporter has counted since its last report. Pure.

A record's key is the reporter's id, its value a map in the format MessagePack (docs/audit.md describes its fields).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgpack

from raylog.client.audit.sequences import SEQUENCE_END, Segment
from raylog.client.audit.stamps import CLIENT_BYTES

VERSION: Final = 1
REPORT_BYTES_MAX: Final = 1 << 20
NAME_CHARACTERS_MAX: Final = 249
"""Of topics, as in Kafka, and of tiers."""
BUCKET_MS_MAX: Final = 86_400_000
INTERVAL_MS_MAX: Final = 3_600_000
TIMES_MAX: Final = 1 << 31

PRODUCER: Final = "producer"
LOG: Final = "log"
"""The tiers that are not of readers."""


class Kind(IntEnum):
    """What was counted."""

    ACKNOWLEDGED = 0
    """By a producer: the record was appended."""
    FAILED = 1
    """By a producer: the record has ended with an error, and may have been appended or not."""
    SEEN = 2
    """By the auditor of a log, records that are not aborted; by a reader, records that it was given."""
    REDELIVERED = 3
    """By a reader: records at offsets that it had passed before."""
    ABORTED = 4
    """By the auditor of a log: records of aborted transactions."""


@dataclass(frozen=True, slots=True)
class Count:
    """Sequence numbers of one producer, topic and bucket. `segments` are in order and disjoint."""

    kind: Kind
    topic: str
    client: bytes
    bucket_ms: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Unstamped:
    """The number of records without a stamp, in the bucket of their timestamps."""

    topic: str
    bucket_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class Report:
    """One report. Those of a reporter are numbered from 0, so that a missing one is noticed."""

    reporter: bytes
    number: int
    tier: str
    bucket_ms: int
    """The length of the buckets."""
    interval_ms: int
    """The next report follows after this time at the latest, unless this is the last one."""
    is_last: bool
    until_ms: int | None
    """The counts are complete up to this moment; None for the time of the report."""
    counts: tuple[Count, ...]
    unstamped: tuple[Unstamped, ...]
    topics: tuple[str, ...] = ()
    """Of the tier log: what it has read, though it may have found nothing to count."""


class MalformedReport(ValueError):
    """A record of the audit topic that is no report."""


def encode_report(report: Report) -> bytes:
    fields: dict[str, Any] = {
        "version": VERSION,
        "reporter": report.reporter,
        "number": report.number,
        "tier": report.tier,
        "bucket_ms": report.bucket_ms,
        "interval_ms": report.interval_ms,
        "last": report.is_last,
        "until_ms": report.until_ms,
        "counts": [entry for count in report.counts for entry in _entries(count)],
        "unstamped": [[each.topic, each.bucket_ms, each.count] for each in report.unstamped],
        "topics": report.topics,
    }
    encoded: bytes = msgpack.packb(fields)
    return encoded


def _entries(count: Count) -> list[list[Any]]:
    """One for each number of times, with [gap, length, gap, length...]."""
    by_times: dict[int, list[int]] = {}
    ends: dict[int, int] = {}
    for start, end, times in count.segments:
        by_times.setdefault(times, []).extend((start - ends.get(times, 0), end - start))
        ends[times] = end
    head = [count.kind.value, count.topic, count.client, count.bucket_ms]
    return [[*head, times, ranges] for times, ranges in by_times.items()]


def decode_report(data: bytes | None) -> Report:
    """Raises MalformedReport for anything that `encode_report` does not make."""
    if data is None or len(data) > REPORT_BYTES_MAX:
        raise MalformedReport("a report must have at most 1 MiB")
    try:
        fields = msgpack.unpackb(data, max_str_len=4 * NAME_CHARACTERS_MAX, max_bin_len=CLIENT_BYTES, max_map_len=32)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise MalformedReport(f"not in the format MessagePack: {error}") from None
    try:
        if fields["version"] != VERSION:
            raise MalformedReport(f"version {fields['version']!r} is not known")
        until_ms = fields["until_ms"]
        return Report(
            reporter=_client(fields["reporter"]),
            number=_number(fields["number"]),
            tier=_name(fields["tier"]),
            bucket_ms=_number(fields["bucket_ms"], 1, BUCKET_MS_MAX + 1),
            interval_ms=_number(fields["interval_ms"], 1, INTERVAL_MS_MAX + 1),
            is_last=bool(fields["last"]),
            until_ms=None if until_ms is None else _number(until_ms),
            counts=tuple(_count(entry) for entry in fields["counts"]),
            unstamped=tuple(
                Unstamped(_name(topic), _number(bucket_ms), _number(count, 1))
                for topic, bucket_ms, count in fields["unstamped"]
            ),
            topics=tuple(_name(topic) for topic in fields.get("topics", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedReport(str(error)) from None


def _count(entry: Any) -> Count:
    kind, topic, client, bucket_ms, times, ranges = entry
    _number(times, 1, TIMES_MAX)
    if len(ranges) % 2:
        raise MalformedReport("a range has no length")
    segments = []
    end = 0
    for gap, length in zip(ranges[::2], ranges[1::2], strict=True):
        start = end + _number(gap)
        end = start + _number(length, 1, SEQUENCE_END + 1)
        if end > SEQUENCE_END:
            raise MalformedReport("a sequence number has more than 63 bits")
        segments.append(Segment(start, end, times))
    return Count(Kind(kind), _name(topic), _client(client), _number(bucket_ms), tuple(segments))


def _number(value: Any, least: int = 0, end: int = SEQUENCE_END) -> int:
    if type(value) is not int or not least <= value < end:
        raise MalformedReport(f"{value!r} is not a number from {least} to {end - 1}")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise MalformedReport("a name must be a text of 1 to 249 characters")
    return value


def _client(value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) != CLIENT_BYTES:
        raise MalformedReport("an id must have 16 bytes")
    return value
