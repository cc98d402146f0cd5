"""Where several workers copy records of the same partition, its status is that of all of them together."""

from __future__ import annotations

from dataclasses import replace

from raylog.mirror.flow_status import FlowStatus, with_passed_on
from raylog.mirror.shard import PartitionStatus
from raylog.mirror.spread import Spread

OWN = PartitionStatus(
    "t", 0, "t", 1, "running", 120, 7, 100, 9_000, 4.0, 300.0, 500, Spread(3, 2, 9, 4.0), None, 2, None, 0
)
OTHER = replace(
    OWN, state="failing", next_offset=90, lag=37, records=20, last_record_age_ms=None, error="denied", attempts=3
)
PARTITION_1 = replace(OWN, partition=1)


def flow(*partitions: PartitionStatus, errors: tuple[str, ...] = ()) -> FlowStatus:
    return FlowStatus("A->B", (0, 1), partitions, errors)


def test_one_worker_is_shown_as_it_is() -> None:
    assert with_passed_on(flow(OWN), []) == flow(OWN)


def test_a_partition_is_as_far_as_all_workers_are_and_as_bad_as_the_worst() -> None:
    slow = replace(OTHER, record_ages=Spread(50, 1, 60, 20.0))
    shown = with_passed_on(flow(OWN, PARTITION_1, errors=("x",)), [flow(slow, errors=("x", "y"))])
    assert (shown.errors, len(shown.partitions)) == (("x", "y"), 2)
    both, alone = shown.partitions
    assert alone == PARTITION_1
    assert both == replace(
        slow,
        records=120,
        size_bytes=18_000,
        records_per_sec=8.0,
        bytes_per_sec=600.0,
        last_record_age_ms=500,
        record_ages=Spread(50, 1, 60, 20.0),
    )
    assert both.record_ages is not None
    assert (both.next_offset, both.lag, both.lost) == (90, 37, 2)


def test_where_one_has_not_begun_nothing_is_complete() -> None:
    begins = replace(OWN, next_offset=None, lag=None, records=0, record_ages=None)
    (both,) = with_passed_on(flow(OWN), [flow(begins)]).partitions
    assert (both.next_offset, both.lag, both.record_ages) == (None, 7, OWN.record_ages)
