"""The committed offsets of a group contain the plan of a batch: whatever is killed, a batch is read again as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.group_plan import BatchPlan, GroupProgress, next_plan
from raylog.raydp_bridge.offset_ranges import Bounds, Resolved
from raylog.raydp_bridge.read_options import Limits

A, B, C = (TopicPartition("orders", number) for number in range(3))
PARTITIONS = (A, B, C)


def test_a_group_without_offsets_begins_with_batch_0() -> None:
    assert GroupProgress.read({}) == GroupProgress({}, 0, None)


def test_partitions_without_records_keep_the_offset_at_which_the_group_started() -> None:
    plan = BatchPlan(0, {A: 5, B: 7}, {A: 9, B: 7})
    stored = plan.announced({})
    assert stored == {A: OffsetAndMetadata(5, '{"batch":0,"end":9}'), B: OffsetAndMetadata(7)}
    assert GroupProgress.read(stored) == GroupProgress({A: 5, B: 7}, 1, BatchPlan(0, {A: 5}, {A: 9}))
    stored |= plan.done()
    assert GroupProgress.read(stored) == GroupProgress({A: 9, B: 7}, 1, None)
    later = BatchPlan(1, {A: 9, B: 7}, {A: 9, B: 8})
    assert later.announced(stored) == {
        A: OffsetAndMetadata(9, '{"batch":0}'),  # again, or it expires while only the other one has records
        B: OffsetAndMetadata(7, '{"batch":1,"end":8}'),
    }


def test_offsets_that_another_program_commits_belong_to_no_plan() -> None:
    stored = BatchPlan(3, {A: 5, B: 7}, {A: 9, B: 9}).announced({})
    stored[A] = OffsetAndMetadata(1)
    assert GroupProgress.read(stored) == GroupProgress({A: 1, B: 7}, 4, BatchPlan(3, {B: 7}, {B: 9}))
    stored[B] = OffsetAndMetadata(8, "reset by hand")
    assert GroupProgress.read(stored) == GroupProgress({A: 1, B: 8}, 0, None)


COUNTS = st.integers(-3, 1 << 70)
METADATA = st.one_of(
    st.text(max_size=20),
    st.fixed_dictionaries({}, optional={"batch": COUNTS, "end": COUNTS}).map(json.dumps),
    st.sampled_from(
        ['{"batch":true,"end":9}', '{"batch":1,"end":"9"}', '{"batch":1,"end":2}', "[" * 100_000, "1" * 5000]
    ),
)


@given(st.dictionaries(st.sampled_from(PARTITIONS), st.tuples(st.integers(0, 10), METADATA)))
def test_no_metadata_breaks_the_reading(stored: dict[TopicPartition, tuple[int, str]]) -> None:
    progress = GroupProgress.read({tp: OffsetAndMetadata(*each) for tp, each in stored.items()})
    assert progress.positions == {tp: offset for tp, (offset, _) in stored.items()}
    assert progress.pending is None or progress.pending.starts.items() <= progress.positions.items()


def test_topics_that_are_gone_are_losses_and_those_of_an_earlier_use_are_not() -> None:
    other = TopicPartition("returns", 0)
    progress = GroupProgress({A: 5, other: 3}, 4)
    bounds = Bounds({other: 0}, {other: 9})
    plan, losses = next_plan(progress, Resolved({}), bounds, Limits(), topics=["orders", "returns"])
    assert (plan, losses) == (BatchPlan(4, {other: 3}, {other: 9}), ["orders-0 is gone"])
    assert next_plan(progress, Resolved({}), Bounds({}, {}), Limits(), topics=["orders"])[1] == ["orders-0 is gone"]
    assert next_plan(progress, Resolved({}), bounds, Limits(), topics=["returns"]) == (plan, [])


def test_a_partition_whose_loss_was_reported_is_new_when_it_exists_again() -> None:
    progress = GroupProgress({A: 5}, 4)
    nothing = next_plan(progress, Resolved({}), Bounds({}, {}), Limits(), topics=["orders"], gone={A})
    assert nothing == (BatchPlan(4, {}, {}), [])
    again = next_plan(progress, Resolved({}), Bounds({A: 0}, {A: 7}), Limits(), topics=["orders"], gone={A})
    assert again == (BatchPlan(4, {A: 0}, {A: 7}), [])


def test_a_topic_that_never_existed_is_refused() -> None:
    progress = GroupProgress({A: 5}, 4)
    with pytest.raises(KafkaError, match="retruns: does not exist") as refused:
        next_plan(progress, Resolved({}), Bounds({A: 0}, {A: 7}), Limits(), topics=["orders", "retruns"])
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Driver:
    """Reads batches as `DatasetStream` does, and is killed between any two of its steps."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self.read: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        self.done: list[int] = []

    def run(self, ends: dict[TopicPartition, int], *, steps: int) -> None:
        progress = GroupProgress.read(self.stored)
        plan = progress.pending
        if plan is None:
            starts = {tp: progress.positions.get(tp, 0) for tp in PARTITIONS}
            plan = BatchPlan(progress.next_batch_id, starts, {tp: max(starts[tp], ends[tp]) for tp in PARTITIONS})
            if steps < 1:
                return
            self.stored |= plan.announced(self.stored)
        if steps < 2 or plan.is_empty:
            return
        ranges = {tp: (start, plan.ends[tp]) for tp, start in plan.starts.items() if plan.ends[tp] > start}
        assert self.read.setdefault(plan.batch_id, ranges) == ranges, "a batch is read again with other offsets"
        if steps < 3:
            return
        self.stored |= plan.done()
        self.done.append(plan.batch_id)


RUNS = st.lists(st.tuples(st.tuples(*(st.integers(0, 5) for _ in PARTITIONS)), st.integers(0, 3)), max_size=30)


@given(RUNS)
def test_every_offset_is_in_one_batch_whenever_the_driver_is_killed(runs: list[tuple[tuple[int, ...], int]]) -> None:
    driver, ends = Driver(), dict.fromkeys(PARTITIONS, 0)
    for grown, steps in runs:
        ends = {tp: ends[tp] + more for tp, more in zip(PARTITIONS, grown, strict=True)}
        driver.run(ends, steps=steps)
    driver.run(ends, steps=3)
    driver.run(ends, steps=3)
    for tp in PARTITIONS:
        ranges = [batch[tp] for _, batch in sorted(driver.read.items()) if tp in batch]
        assert [offset for start, end in ranges for offset in range(start, end)] == list(range(ends[tp]))
