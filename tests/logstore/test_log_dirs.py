"""An exchange of a log for its copy in another directory loses nothing, whenever the process ends."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from raylog.core.ids import BrokerId
from raylog.logstore.future_log import FutureLog
from raylog.logstore.log import Log
from raylog.logstore.log_dir import run_in_order
from raylog.logstore.log_dirs import LogDirs
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import NOW, TP, append, batch, contents, numbered
from tests.support.sim_disk import Killed, SimDisk

PATHS = ("/a", "/b")
SETTINGS = LogSettings(segment_bytes=400)
VALUES = [b"%d" % number * 20 for number in range(23)]
COPIED = 20


def open_dirs(disk: SimDisk, rng: random.Random) -> LogDirs:
    return LogDirs.open(
        disk,
        PATHS,
        cluster_id="cluster",
        broker_id=BrokerId(1),
        settings_for=lambda _: SETTINGS,
        now_ms=NOW,
        new_id=lambda: UUID(int=rng.getrandbits(128)),
        run_all=run_in_order,
    )


def copied(disk: SimDisk, log_dirs: LogDirs, identity: UUID) -> tuple[Log, FutureLog]:
    """A log with VALUES in the first directory, durable, and its closed copy that lacks those after COPIED."""
    log = log_dirs.dirs[0].create_log(TP, identity, NOW)
    for value in VALUES[:COPIED]:
        append(log, batch(value))
    future = FutureLog(disk, log_dirs.dirs[1], log, identity)
    future.create()
    while not future.is_closed:
        plan = future.plan(now_ms=NOW, close=future.is_caught_up)
        plan.run()
        future.ended(plan)
    for value in VALUES[COPIED:]:
        append(log, batch(value))
    log.flush()
    return log, future


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_kill_during_an_exchange_keeps_what_was_appended_after_the_copy(*, power_cut: bool) -> None:
    killed_at = 0
    while True:
        killed_at += 1
        rng = random.Random(killed_at)
        disk = SimDisk(rng)
        for path in PATHS:
            disk.mkdir(path)
        disk.fsync_dir("")
        log_dirs = open_dirs(disk, rng)
        _, future = copied(disk, log_dirs, UUID(int=1))
        disk.arm(kill_at_op=killed_at)
        try:
            moved = log_dirs.swap(future, now_ms=NOW)
        except Killed:
            disk.crash(power_cut=power_cut)
        else:
            assert moved is not None
            assert contents(moved) == numbered(VALUES)
            break
        log = open_dirs(disk, rng).log(TP)
        assert log is not None
        assert contents(log) == numbered(VALUES), f"killed at {killed_at}"
