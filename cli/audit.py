"""`raylog audit`: find lost and duplicated records by what producers, consumers and the log have counted."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from raylog.cli.arguments import Subparsers, add_bootstrap_server, client_config, timestamp_ms, whole_number
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.client.audit.audit_topic import AUDIT_TOPIC, CheckedAudit, check_audit
from raylog.client.audit.checking import AuditResult, Finding, Numbers, Verdict
from raylog.client.audit.log_audit import audit_log

FAILED = 1
GRACE_SECONDS = 300
RANGES_PRINTED_MAX = 10
LAST_MS = 253_402_300_799_000
"""The end of the year 9999, beyond which there are no dates."""


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("audit", help="find lost and duplicated records")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    check = actions.add_parser(
        "check",
        help="compare the counts in the audit topic; exits with code 1 if records are lost",
        description="Prints, by topic, producer, bucket and tier, the sequence numbers that are lost, duplicated,"
        " redelivered, aborted or unreported. Exits with code 1 if records are lost.",
    )
    check.add_argument("--topic", action="append", default=[], dest="topics", metavar="TOPIC", help="can be repeated")
    check.add_argument(
        "--from",
        type=timestamp_ms,
        dest="from_ms",
        metavar="TIME",
        help="first bucket to check, such as 2026-01-31T12:00:00 (UTC without a time zone); every tier is then"
        " expected to have counted from there on (default: from the first bucket that it has counted)",
    )
    check.add_argument("--to", type=timestamp_ms, dest="to_ms", metavar="TIME", help="check buckets before this time")
    check.add_argument(
        "--grace",
        type=whole_number(0),
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="how long after the end of a bucket its records may still be counted (default: %(default)s)",
    )
    check.set_defaults(run=_check)

    log = actions.add_parser(
        "log",
        help="count the records of topics in their logs",
        description="Reads what the topics have got since the last time, and reports it as the tier log: with it,"
        " the check can tell where a record was lost, and which ones were aborted. Requires to write to the audit"
        " topic, to commit offsets of the group raylog-audit-log, and to use the transactional id"
        " raylog-audit-log-TOPIC.",
    )
    log.add_argument("topics", nargs="+", metavar="TOPIC")
    log.set_defaults(run=_log)

    for action in (check, log):
        add_json(action)
        action.add_argument("--audit-topic", default=AUDIT_TOPIC, metavar="TOPIC", help="default: %(default)s")
        add_bootstrap_server(action)


def _log(options: argparse.Namespace) -> None:
    brokers = client_config(options)
    counted = [
        {
            "topic": topic,
            "partition": found.tp.partition,
            "from_offset": found.start_offset,
            "to_offset": found.end_offset,
            "offsets": found.end_offset - found.start_offset,
            "deleted": found.deleted,
        }
        for topic in options.topics
        for found in audit_log(topic, brokers, audit_topic=options.audit_topic)
    ]
    rows = []
    for each in counted:
        *cells, deleted = each.values()
        note = f"{deleted} offsets were deleted before they were counted" if deleted else ""
        rows.append([*map(str, cells), note])
    show(options, counted, columns(["TOPIC", "PARTITION", "FROM-OFFSET", "TO-OFFSET", "OFFSETS", "NOTE"], rows))


def _check(options: argparse.Namespace) -> int:
    checked = check_audit(
        client_config(options, isolation_level="read_committed"),
        audit_topic=options.audit_topic,
        topics=options.topics,
        from_ms=options.from_ms,
        to_ms=options.to_ms,
        grace_ms=1000 * options.grace,
    )
    show(options, _as_json(checked), _as_text(checked))
    return FAILED if checked.result.lost else 0


def _as_json(checked: CheckedAudit) -> dict[str, Any]:
    result = checked.result
    return {
        "reports": checked.reports,
        "malformed_reports": checked.malformed,
        "lost": result.lost,
        "tiers": [{"topic": topic, "tier": tier, **counts} for (topic, tier), counts in _totals(result).items()],
        "findings": [
            {
                "topic": verdict.topic,
                "bucket": _time(verdict.bucket_ms),
                "bucket_ms": verdict.bucket_ms,
                "client": verdict.client.hex(),
                "tier": verdict.tier,
                "finding": finding.value,
                "records": numbers.count,
                "ranges": numbers.range_count,
                "first_ranges": [
                    {"first": start, "last": end - 1, "times": times} for start, end, times in numbers.ranges
                ],
            }
            for verdict, finding, numbers in _findings(result)
        ],
        "unstamped": [
            {
                "topic": each.topic,
                "bucket": _time(each.bucket_ms),
                "bucket_ms": each.bucket_ms,
                "tier": each.tier,
                "records": each.count,
            }
            for each in result.unstamped
        ],
    }


def _as_text(checked: CheckedAudit) -> str:
    totals = _totals(checked.result)
    if not totals:
        return f"nothing was counted ({checked.reports:,} reports)"
    names = ["counted", *(each.value for each in Finding), "unstamped"]
    rows = [[topic, tier, *(str(counts[name]) for name in names)] for (topic, tier), counts in totals.items()]
    parts = [columns(["TOPIC", "TIER", *map(str.upper, names)], rows)]
    found = [
        [
            verdict.topic,
            _time(verdict.bucket_ms),
            verdict.client.hex(),
            verdict.tier,
            finding.value,
            str(numbers.count),
            _ranges(numbers),
        ]
        for verdict, finding, numbers in _findings(checked.result)
    ]
    if found:
        parts.append(columns(["TOPIC", "BUCKET", "CLIENT", "TIER", "FINDING", "RECORDS", "SEQUENCES"], found))
    if checked.malformed:
        parts.append(f"{checked.malformed:,} records of the audit topic are not reports")
    return "\n\n".join(parts)


def _totals(result: AuditResult) -> dict[tuple[str, str], dict[str, int]]:
    """By topic and tier."""
    totals: dict[tuple[str, str], dict[str, int]] = {}

    def of(topic: str, tier: str) -> dict[str, int]:
        names = ["counted", *(each.value for each in Finding), "unstamped"]
        return totals.setdefault((topic, tier), dict.fromkeys(names, 0))

    for verdict in result.verdicts:
        counts = of(verdict.topic, verdict.tier)
        counts["counted"] += verdict.counted
        for finding, numbers in verdict.findings.items():
            counts[finding.value] += numbers.count
    for each in result.unstamped:
        of(each.topic, each.tier)["unstamped"] += each.count
    return totals


def _findings(result: AuditResult) -> Iterator[tuple[Verdict, Finding, Numbers]]:
    for verdict in result.verdicts:
        for finding, numbers in verdict.findings.items():
            yield verdict, finding, numbers


def _ranges(numbers: Numbers) -> str:
    shown = [
        str(start) if end == start + 1 else f"{start}-{end - 1}"
        for start, end, _ in numbers.ranges[:RANGES_PRINTED_MAX]
    ]
    more = numbers.range_count - len(shown)
    return ",".join(shown) + (f" and {more} more ranges" if more else "")


def _time(bucket_ms: int) -> str:
    """A bucket that a client made up may have no date."""
    if bucket_ms > LAST_MS:
        return f"{bucket_ms} ms"
    return datetime.fromtimestamp(bucket_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
