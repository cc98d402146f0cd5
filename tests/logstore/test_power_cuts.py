"""After a power failure at any disk operation, synced records exist and no record is wrong.

A plan of random steps runs once. Before each operation that changes the disk the disk is copied, the copy loses its
power (a write in progress is torn), and a log directory is opened over it and held against what may be there. All
batches have one size, so that older ones which a cut has taken away would fit exactly behind the newer ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from raylog.core.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.background_sync import SyncPlan
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.offset_checkpoint import CheckpointPlan
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.batch import parse_header
from raylog.protocol.records.markers import read_marker
from tests.logstore.batches import NOW, batch, contents, marker
from tests.support.cut_disk import CutDisk
from tests.support.forms import by_form
from tests.support.sim_disk import SimDisk

ROOT = "/broker"
TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
SETTINGS = LogSettings(segment_bytes=420, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=30)
PLANS = by_form(10, quick=6, long=1000)
STEPS = 70
CUTS_AT_LEAST = 200
"""Per plan: with 40 plans more than 10,000."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a start may find: records by offset, of which none from `start` to `durable` may be missing; and older ones
    where the crash has taken back a deletion."""

    values: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    durable: int = 0

    def fits(self, log: Log, found: list[tuple[int, bytes | None]]) -> bool:
        if self.durable > log.log_end_offset or (log.log_start_offset > self.start and self.durable > self.start):
            return False
        shown = [one for one in sorted(self.values.items()) if log.log_start_offset <= one[0] < log.log_end_offset]
        return log.log_end_offset <= self.end and found == [one for one in shown if one[1]]


class Plan:
    """One run of random steps over one partition; `allowed` are the states of which a crash now may leave any."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = CutDisk(random.Random(seed))
        self.now_ms = NOW
        self.written = 0
        self.epoch = 0
        self.sequences = {1: 0, 2: 0}
        self.log_dir = open_dir(self.disk, self.now_ms)
        self.log = self.log_dir.create_log(TP, TOPIC_ID, self.now_ms)
        self.log_dir.write_checkpoints()
        self.planned: CheckpointPlan | None = None
        self.planned_has_run = False
        self.state = Allowed()
        self.allowed = [self.state]
        self.disk.on_cut = self.check

    def run(self) -> None:
        steps = [self.append] * 8 + [self.end_transaction] * 2 + [self.flush] * 2 + [self.truncate] * 2
        steps += [self.roll, self.delete_records, self.retain, self.checkpoint, self.reopen]
        steps += [self.plan_checkpoint] * 4
        self.run_steps(steps)

    def run_steps(self, steps: list[Callable[[], None]]) -> None:
        for _ in range(STEPS):
            self.now_ms += self.rng.randrange(20)
            self.rng.choice(steps)()

    def goes_to(self, state: Allowed, *, unless: tuple[Allowed, ...] = ()) -> None:
        """From now on, until `arrived`, a crash may leave this one as well as what it may leave already."""
        self.allowed = [*self.allowed, state, *unless]

    def arrived(self, state: Allowed) -> None:
        self.state = state
        self.allowed = [state]

    # Steps

    def append(self) -> None:
        producer_id = self.rng.choice([-1, 1, 2])
        self.written += 1
        value = b"%08d" % self.written
        producer = (producer_id, self.epoch, self.sequences.get(producer_id, -1))
        record_set = batch(value, timestamp_ms=self.now_ms, producer=producer, transactional=producer_id == 2)
        if producer_id > 0:
            self.sequences[producer_id] += 1
        self.write(record_set, value)

    def end_transaction(self) -> None:
        """Also where none is open: a marker may come twice."""
        committed = self.rng.random() < 0.5
        self.write(marker(2, committed=committed, producer_epoch=self.epoch, timestamp_ms=self.now_ms), b"")

    def write(self, record_set: bytearray, value: bytes) -> None:
        state = self.state
        grown = replace(state, values={**state.values, state.end: value}, end=state.end + 1)
        self.goes_to(grown)
        self.log.append_as_leader(
            memoryview(record_set), leader_epoch=LeaderEpoch(self.epoch), now_ms=self.now_ms, from_client=False
        )
        self.arrived(grown)

    def flush(self) -> None:
        self.log.flush()
        self.arrived(replace(self.state, durable=self.state.end))

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def checkpoint(self) -> None:
        self.log_dir.write_checkpoints()

    def plan_checkpoint(self) -> None:
        """One more stage of a checkpoint that another thread writes: planned, written, renamed."""
        if self.planned is None:
            plans = (self.log_dir.plan_recovery_points, self.log_dir.plan_log_start_offsets)
            self.planned = self.rng.choice(plans)()
        elif not self.planned_has_run:
            self.planned.run()
            self.planned_has_run = True
        else:
            self.log_dir.checkpoint_ended(self.planned, None)
            self.planned, self.planned_has_run = None, False

    def truncate(self) -> None:
        state = self.state
        offset = max(state.end - self.rng.randrange(8), state.start)
        if offset == state.end:
            return
        values = {at: value for at, value in state.values.items() if at < offset}
        cut = Allowed(values, min(state.start, offset), offset, min(state.durable, offset))
        self.goes_to(replace(state, durable=cut.durable))
        self.epoch += 1  # the producers start with a new epoch
        self.sequences = dict.fromkeys(self.sequences, 0)
        self.log_dir.truncate_log(TP, Offset(offset))
        self.arrived(cut)

    def delete_records(self) -> None:
        state = self.state
        offset = self.rng.randrange(state.start, state.end + 1)
        self.log.delete_records_before(Offset(offset))
        self.arrived(replace(state, start=max(offset, state.start)))

    def retain(self) -> None:
        self.log.apply_retention(self.now_ms)
        self.log_dir.delete_retired(self.now_ms)

    def reopen(self) -> None:
        self.goes_to(replace(self.state, durable=self.state.end))
        self.planned, self.planned_has_run = None, False  # a stop waits for other threads, and forgets their ends
        self.log_dir.close()
        self.log_dir = open_dir(self.disk, self.now_ms)
        self.log = self.log_dir.logs[TP]
        self.arrived(replace(self.state, durable=self.state.end))
        assert self.state.fits(self.log, contents(self.log))

    # What a start finds

    def check(self, disk: SimDisk) -> None:
        log = open_dir(disk, self.now_ms).logs[TP]
        found = contents(log, max_bytes=300)
        assert any(state.fits(log, found) for state in self.allowed), (self.allowed, log.log_start_offset, found)
        check_lookups(log, found)
        end = log.log_end_offset
        info = log.append_as_leader(
            memoryview(batch(b"after")), leader_epoch=LeaderEpoch(self.epoch), now_ms=self.now_ms
        )
        assert info.first_offset == end


class PlanWithSyncs(Plan):
    """The same with syncs that another thread carries out, of closed segments or of everything."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sync: SyncPlan | None = None
        self.sync_has_run = False

    def run_steps(self, steps: list[Callable[[], None]]) -> None:
        super().run_steps([*steps, *[self.plan_sync] * 8])

    def plan_sync(self) -> None:
        """One more stage of a sync: planned, carried out, reported."""
        if self.sync is None:
            self.log.settings = replace(SETTINGS, flush_ms=self.rng.choice([0, SETTINGS.flush_ms]))
            self.sync = self.log.plan_sync(self.now_ms)
        elif not self.sync_has_run:
            self.sync.run(self.disk)
            self.sync_has_run = True
        else:
            self.log.sync_ended(self.sync, None)
            self.sync, self.sync_has_run = None, False
            self.arrived(replace(self.state, durable=max(self.state.durable, self.log.recovery_point)))

    def reopen(self) -> None:
        self.sync, self.sync_has_run = None, False
        super().reopen()


def check_lookups(log: Log, found: list[tuple[int, bytes | None]]) -> None:
    """Indexes, transactions and producers say what a walk through the batches says."""
    upto = log.log_end_offset
    times: dict[int, int] = {}
    still_open: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    at = log.log_start_offset
    while at < upto:
        piece = log.read(at, max_bytes=1, upto=upto)
        header = parse_header(piece.records)
        assert header.base_offset == at == piece.next_offset - 1, "one record each"
        times.setdefault(header.max_timestamp, at)
        if header.is_transactional and not header.is_control:
            still_open.setdefault(header.producer_id, at)
        elif header.is_control:
            first = still_open.pop(header.producer_id, None)
            mark = read_marker(piece.records, 0, header)
            assert mark is not None
            if first is not None and not mark.committed:
                aborted.append((first, at))
        at = piece.next_offset
    for timestamp_ms, offset in times.items():
        sought = log.offset_for_timestamp(timestamp_ms, upto=upto)
        assert sought is not None
        assert sought[:2] == (offset, timestamp_ms)
    told = [(one.first_offset, one.last_offset) for one in log.aborted_transactions(log.log_start_offset, upto)]
    stable = log.last_stable_offset(upto)
    if log.log_start_offset == 0:
        assert told == aborted
        assert stable == min(still_open.values(), default=upto)
    else:  # a transaction may have begun before
        assert {last for _, last in told} >= {last for _, last in aborted}
        assert stable <= min(still_open.values(), default=upto)


def open_dir(disk: Disk, now_ms: int, *, path: str = ROOT) -> LogDir:
    return LogDir.open(
        disk,
        path,
        cluster_id="c",
        broker_id=BrokerId(1),
        settings_for=lambda topic: SETTINGS,
        now_ms=now_ms,
        new_id=lambda: UUID(int=1),
    )


@pytest.mark.parametrize("seed", sorted({*range(PLANS), 76, 124}))
def test_a_power_failure_at_any_operation(seed: int) -> None:
    plan = Plan(seed)
    plan.run()
    assert plan.disk.cuts >= CUTS_AT_LEAST


@pytest.mark.parametrize("seed", range(PLANS // 2))
def test_whatever_change_of_the_disk_is_the_last_while_another_thread_syncs(seed: int) -> None:
    plan = PlanWithSyncs(seed)
    plan.run()
    assert plan.disk.cuts >= CUTS_AT_LEAST // 2, "many steps only plan or report a sync"
