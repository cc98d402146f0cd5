"""Periodic work on all partitions takes bounded steps, and one partition that fails does not stop the others."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from raylog.broker.partition_round import STEP_LOOKS, PartitionRound
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.replication.partition import Partition
from tests.support.direct_work import DirectWork

NOW = Now(0, 0)


class Work:
    """`pieces[number]` pieces of work for each partition; None: its disk fails."""

    def __init__(self, pieces: list[int | None]) -> None:
        self.left = dict(enumerate(pieces))
        self.calls = 0
        self.works = 0
        self.background = DirectWork(NOW)
        self.partitions = {TopicPartition("t", number): cast(Partition, number) for number in self.left}
        self.round = PartitionRound(self.partitions, self.background, self.work, on_progress=lambda _: None)

    def work(self, partition: Any, now: Now) -> bool:
        self.calls += 1
        left = self.left[partition]
        if left is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if left == 0:
            return False
        self.works += 1
        self.left[partition] = left - 1
        return True


@given(st.lists(st.none() | st.integers(0, 3), max_size=3 * STEP_LOOKS))
def test_everything_is_done_in_bounded_steps(pieces: list[int | None]) -> None:
    work = Work(pieces)
    work.round.begin()
    while work.background.steps:
        calls, works = work.calls, work.works
        work.background.run_step()
        assert work.calls - calls <= STEP_LOOKS
        assert work.works - works <= 1
    assert all(not left for left in work.left.values())


def test_a_round_is_not_begun_again_before_it_ends() -> None:
    work = Work([0] * (STEP_LOOKS + 1))
    work.round.begin()
    work.background.run_step()
    work.round.begin()
    assert len(work.background.steps) == 1
    work.background.run_step()
    assert not work.background.steps
    assert work.calls == STEP_LOOKS + 1


def test_a_partition_that_is_closed_meanwhile_is_left_out() -> None:
    work = Work([1, 1])
    work.round.begin()
    work.partitions.clear()
    work.background.settle()
    assert work.calls == 0
