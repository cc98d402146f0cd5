"""(shell) The audit alone, in this process: what the interceptors add to a record, and what a check takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from benchmarks.figures import Figure, figure, progress
from raylog.client.audit.checking import Checker
from raylog.client.audit.counting import Counts
from raylog.client.audit.reports import PRODUCER, Kind, decode_report, encode_report
from raylog.client.audit.stamps import Stamp, Stamper, read_stamp

RECORDS = 200_000
BUCKET_MS = 60_000
CLIENT = bytes(16)
PARTITIONS = 12
RUN = 50
"""How many records of a partition follow each other, as where records without a key fill a batch."""


def measure(runs: int) -> list[Figure]:
    stamper = Stamper(CLIENT, BUCKET_MS)
    headers = [stamper.stamped("orders", (), 0) for _ in range(RECORDS)]
    stamps = [found for each in headers if (found := read_stamp(each)) is not None]
    by_partition = [
        stamps[run]
        for partition in range(PARTITIONS)
        for first in range(partition * RUN, RECORDS, PARTITIONS * RUN)
        for run in range(first, min(first + RUN, RECORDS))
    ]

    def counts(tier: str, kind: Kind, counted: Iterable[Stamp]) -> Counts:
        counts = Counts(CLIENT, tier, bucket_ms=BUCKET_MS, interval_ms=1000)
        for stamp in counted:
            counts.count(kind, "orders", stamp)
        return counts

    def check() -> None:
        checker = Checker(grace_ms=0)
        for tier, kind in ((PRODUCER, Kind.ACKNOWLEDGED), ("billing", Kind.SEEN)):
            for report in counts(tier, kind, by_partition).take(is_last=True):
                checker.add(decode_report(encode_report(report)), 0)
        checker.check(BUCKET_MS)

    def stamp_all() -> None:
        for _ in range(RECORDS):
            stamper.stamped("orders", (), 0)

    def read_all() -> None:
        for each in headers:
            read_stamp(each)

    figures = [
        figure(f"audit: {name}", "us per record", [_microseconds(work) for _ in range(runs)])
        for name, work in (
            ("stamp", stamp_all),
            ("read a stamp", read_all),
            ("count in order", lambda: counts(PRODUCER, Kind.ACKNOWLEDGED, stamps)),
            ("count by partitions", lambda: counts("billing", Kind.SEEN, by_partition)),
            ("count at two tiers, report and check", check),
        )
    ]
    for each in figures:
        progress(f"{each.path}: {each.median:.2f} {each.unit}")
    return figures


def _microseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e6 / RECORDS
