"""A checkpoint is written by a job, and an older state never replaces a newer one."""

from __future__ import annotations

import errno
import random

import pytest

from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.checkpoint import decode_offsets
from raylog.logstore.offset_checkpoint import CheckpointPlan, OffsetCheckpoint
from tests.support.sim_disk import SimDisk

A0, B1 = TopicPartition("a", 0), TopicPartition("b", 1)
OLD, NEW = {A0: Offset(5), B1: Offset(7)}, {A0: Offset(3), B1: Offset(7)}


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    disk.mkdir("/d")
    disk.fsync_dir("/")
    return disk


@pytest.fixture
def checkpoint(disk: SimDisk) -> OffsetCheckpoint:
    return OffsetCheckpoint(disk, "/d", "offsets")


def said(disk: SimDisk) -> dict[TopicPartition, Offset]:
    return decode_offsets(disk.read_file("/d/offsets"))


def planned(checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, Offset]) -> CheckpointPlan:
    plan = checkpoint.plan(offsets)
    assert plan is not None
    return plan


def carry_out(checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, Offset]) -> None:
    plan = planned(checkpoint, offsets)
    plan.run()
    plan.ended(None)


def test_a_plan_takes_effect_when_it_has_ended(disk: SimDisk, checkpoint: OffsetCheckpoint) -> None:
    checkpoint.write(OLD)
    plan = planned(checkpoint, NEW)
    plan.run()
    assert said(disk) == OLD
    plan.ended(None)
    assert said(disk) == NEW
    assert disk.listdir("/d") == ["offsets"]


def test_one_plan_at_a_time_and_none_without_changes(checkpoint: OffsetCheckpoint) -> None:
    plan = planned(checkpoint, OLD)
    assert checkpoint.plan(NEW) is None
    plan.run()
    plan.ended(None)
    assert checkpoint.plan(dict(OLD)) is None
    assert checkpoint.plan(NEW) is not None


@pytest.mark.parametrize("runs", ["before", "after"])
def test_a_newer_write_is_not_replaced(disk: SimDisk, checkpoint: OffsetCheckpoint, runs: str) -> None:
    plan = planned(checkpoint, OLD)
    if runs == "before":
        plan.run()
    checkpoint.write(NEW)
    if runs == "after":
        plan.run()
    plan.ended(None)
    assert said(disk) == NEW
    carry_out(checkpoint, OLD)
    assert said(disk) == OLD, "a later plan counts again"


def test_the_end_of_a_superseded_plan_has_no_effect(disk: SimDisk, checkpoint: OffsetCheckpoint) -> None:
    first = planned(checkpoint, OLD)
    first.run()
    checkpoint.write(NEW)
    second = planned(checkpoint, {A0: Offset(9)})
    first.ended(None)
    assert said(disk) == NEW
    second.run()
    second.ended(None)
    assert said(disk) == {A0: 9}


def test_a_failed_plan_leaves_the_file_and_is_repeated(disk: SimDisk, checkpoint: OffsetCheckpoint) -> None:
    checkpoint.write(OLD)
    plan = planned(checkpoint, NEW)
    disk.fail_next("fsync", errno.EIO)
    with pytest.raises(OSError, match="error") as failure:
        plan.run()
    with pytest.raises(OSError, match="error"):
        plan.ended(failure.value)
    assert said(disk) == OLD
    carry_out(checkpoint, NEW)
    assert said(disk) == NEW


def test_a_deleted_partition_may_be_in_the_file_until_the_new_one_is_durable(checkpoint: OffsetCheckpoint) -> None:
    checkpoint.write(OLD)
    checkpoint.partition_deleted(A0)
    without = {B1: Offset(7)}
    carry_out(checkpoint, without)
    assert checkpoint.may_name_deleted(A0), "a power cut could bring the old file back"
    carry_out(checkpoint, without)
    assert not checkpoint.may_name_deleted(A0)
    assert checkpoint.plan(without) is None
    checkpoint.partition_deleted(B1)
    checkpoint.write({})
    assert not checkpoint.may_name_deleted(B1)


def test_an_offset_that_a_start_may_find_counts(disk: SimDisk, checkpoint: OffsetCheckpoint) -> None:
    assert not checkpoint.is_at_most(A0, Offset(9)), "of an earlier process"
    checkpoint.write(NEW)
    assert [checkpoint.is_at_most(A0, Offset(offset)) for offset in (2, 3, 5)] == [False, True, True]
    assert checkpoint.is_at_most(TopicPartition("c", 0), Offset(0))
    plan = planned(checkpoint, OLD)
    assert not checkpoint.is_at_most(A0, Offset(4)), "the plan may end at any time"
    plan.run()
    plan.ended(None)
    carry_out(checkpoint, NEW)
    assert not checkpoint.is_at_most(A0, Offset(4)), "a power cut could bring the old file back"
    checkpoint.write(NEW)
    assert checkpoint.is_at_most(A0, Offset(4))
    disk.fail_next("fsync_dir", errno.EIO)
    with pytest.raises(OSError, match="error"):
        checkpoint.write(OLD)
    assert said(disk) == OLD
    assert not checkpoint.is_at_most(A0, Offset(4)), "it was written, though not durably"


@pytest.mark.parametrize("seed", range(60))
def test_after_a_power_failure_the_file_has_one_of_the_last_states(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk(rng)
    disk.mkdir("/d")
    disk.fsync_dir("/")
    checkpoint = OffsetCheckpoint(disk, "/d", "offsets")
    checkpoint.write({A0: Offset(0)})
    floor, plan, has_run = 0, None, False
    for number in range(1, rng.randrange(2, 25)):
        stage = rng.randrange(5)
        if stage == 0:
            checkpoint.write({A0: Offset(number)})
            floor = number
        elif plan is None:
            plan, has_run = checkpoint.plan({A0: Offset(number)}), False
        elif not has_run:
            plan.run()
            has_run = True
        else:
            plan.ended(None)
            plan = None
        assert said(disk)[A0] >= floor
    disk.crash(power_cut=True)
    assert said(disk)[A0] >= floor
