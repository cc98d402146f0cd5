"""After a power failure at any disk operation of a cleaning, nothing is lost, and nothing deleted returns."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from raylog.core.ids import Offset
from raylog.logstore.log import Log
from tests.logstore.batches import NOW, PATH, TP
from tests.logstore.test_cleaning import (
    SETTINGS,
    Writer,
    open_log,
    put,
    records_in,
    run_cleaning,
    table_of,
    take_steps,
    write_cleaned,
)
from tests.support.cut_disk import CutDisk
from tests.support.forms import by_form
from tests.support.sim_disk import SimDisk

PLANS = by_form(1, long=300)
CUTS_AT_LEAST = 60
"""Per plan."""


@pytest.mark.parametrize("seed", range(PLANS))
def test_a_cleaning_survives_a_power_failure_at_each_operation(seed: int) -> None:
    rng = random.Random(seed)
    disk = CutDisk(rng)
    disk.mkdir("/data")
    disk.fsync_dir("")
    settings = replace(SETTINGS, segment_bytes=rng.choice([300, 900]), delete_retention_ms=rng.choice([0, 200]))
    writer = Writer(open_log(disk, settings), rng)
    log = writer.log
    for _ in range(3):
        for _ in range(rng.randrange(10, 40)):
            writer.step()
        writer.end_all()
        log.roll(NOW)
        log.flush()
        before = records_in(log)
        expected = table_of(records_in(log, committed=True))
        is_durable = log.log_end_offset

        def check(twin: SimDisk, expected: dict[bytes, bytes] = expected, end: Offset = is_durable) -> None:
            check_start(twin, writer, expected, end)

        disk.on_cut = check
        run_cleaning(log, disk, now_ms=writer.clock_ms)
        disk.on_cut = None
        assert {record.offset for record in records_in(log)} <= {record.offset for record in before}
    assert disk.cuts > CUTS_AT_LEAST


def check_start(disk: SimDisk, writer: Writer, expected: dict[bytes, bytes], end: Offset) -> None:
    for clean_checkpoint in (0, writer.log.cleaned_upto):
        log = Log.open(
            disk,
            PATH,
            TP,
            writer.log.settings,
            now_ms=NOW,
            recovery_point=writer.log.recovery_point,
            clean=False,
            cleaned_upto=Offset(clean_checkpoint),
        )
        assert log.log_end_offset == end
        found = records_in(log)
        assert all(writer.model.records[record.offset] == record for record in found)
        assert table_of(records_in(log, committed=True)) == expected
        names = disk.listdir(PATH)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        run_cleaning(log, disk, now_ms=writer.clock_ms)  # the start can also be cleaned again
        assert table_of(records_in(log, committed=True)) == expected
        log.abandon()


@pytest.mark.parametrize("seed", range(PLANS))
def test_a_truncation_or_retention_between_two_steps_survives_a_power_failure(seed: int) -> None:
    """A swap that has begun must not be completed by a start after the records of its segment were removed."""
    rng = random.Random(seed)
    disk = CutDisk(rng)
    disk.mkdir("/data")
    disk.fsync_dir("")
    settings = replace(SETTINGS, segment_bytes=300, is_deleted=True, retention_ms=-1)
    log = open_log(disk, settings)
    for number in range(60):
        put(log, (b"k%d" % (number % 5), b"v%d" % number))
    plan, cleaned = write_cleaned(log, disk)
    assert log.begin_swaps(plan, cleaned)
    take_steps(log, rng.randrange(3 * len(cleaned.segments)))
    known = {record.offset: record for record in records_in(log)}
    end = log.log_end_offset
    is_done = False

    def check(twin: SimDisk) -> None:
        start = open_log(twin, settings, clean=False)
        assert all(known[record.offset] == record for record in records_in(start))
        assert start.log_end_offset == end or not is_done
        start.abandon()

    disk.on_cut = check
    bound = Offset(rng.randrange(60))
    if rng.random() < 0.5:
        log.truncate_to(bound)
        known.clear()
    else:  # the last segment that was deleted may return
        log.delete_records_before(bound)
        log.apply_retention(NOW)
    disk.on_cut = None
    for number in range(20):
        put(log, (b"k%d" % (number % 5), b"w%d" % number))
    log.flush()
    known |= {record.offset: record for record in records_in(log)}
    end, is_done = log.log_end_offset, True
    disk.on_cut = check
    disk.mkdir("/data/other")  # a change that makes nothing durable
    take_steps(log)
    disk.on_cut = None
    assert all(known.get(record.offset, record) == record for record in records_in(log))
    log.abandon()
