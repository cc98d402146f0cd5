"""After a power failure at any disk operation of a cleaning, nothing is lost, and nothing deleted returns."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from raylog.core.ids import Offset
from raylog.logstore.log import Log
from tests.logstore.batches import NOW, PATH, TP
from tests.logstore.test_cleaning import SETTINGS, Writer, open_log, records_in, run_cleaning, table_of
from tests.support.cut_disk import CutDisk
from tests.support.forms import by_form
from tests.support.sim_disk import SimDisk

PLANS = by_form(12, quick=3, long=300)
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
