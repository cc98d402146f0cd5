"""A task writes its rows exactly once: by every decision, and in every interleaving of attempts, kills and zombies."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.sinks.exactly_once import (
    TASKS_MAX,
    BatchRefused,
    Decision,
    SinkId,
    Step,
    Steps,
    TaskRows,
    check_tasks,
    decide,
    steps,
)

SINK = SinkId("job")


def rows_of(batch_id: int, digest: str = "d", *, rows: int = 1, tasks: int = 2) -> TaskRows:
    return TaskRows(batch_id, digest, rows, tasks)


@pytest.mark.parametrize(
    ("recorded", "wanted", "expected"),
    [
        (None, rows_of(0), Decision.WRITE),
        (rows_of(0), rows_of(0), Decision.SKIP),
        (rows_of(0), rows_of(1), Decision.WRITE),
        (rows_of(6, "other"), rows_of(7), Decision.WRITE),
        (rows_of(7), rows_of(7), Decision.SKIP),
    ],
)
def test_a_batch_is_written_once(recorded: TaskRows | None, wanted: TaskRows, expected: Decision) -> None:
    assert decide(SINK, 1, recorded, wanted) is expected


@pytest.mark.parametrize(
    ("recorded", "wanted", "message"),
    [
        (rows_of(7), rows_of(7, "other"), "has other rows than when task 1 wrote it"),
        (rows_of(7), rows_of(7, rows=2), "has other rows than when task 1 wrote it"),
        (rows_of(7), rows_of(6), "has batch 7, a later one"),
        (rows_of(7), rows_of(9), "the last batch in job-sink-progress-1 is 7"),
        (rows_of(7), rows_of(8, tasks=3), "was written by 2 tasks, not 3"),
        (rows_of(7), rows_of(7, tasks=3), "was written by 2 tasks, not 3"),
        (None, rows_of(7), "job-sink-progress-1 has no record of batch 6"),
    ],
)
def test_a_batch_that_does_not_follow_is_refused(recorded: TaskRows | None, wanted: TaskRows, message: str) -> None:
    with pytest.raises(BatchRefused) as raised:
        decide(SINK, 1, recorded, wanted)
    assert message in raised.value.message
    assert pickle.loads(pickle.dumps(raised.value)).message == raised.value.message


def test_a_sink_may_begin_with_a_later_batch() -> None:
    late = SinkId("job", "late", first_batch=57)
    assert decide(late, 0, None, rows_of(57)) is Decision.WRITE
    assert decide(late, 0, rows_of(57), rows_of(58)) is Decision.WRITE
    for batch_id in (0, 56, 58):
        with pytest.raises(BatchRefused):
            decide(late, 0, None, rows_of(batch_id))


def test_the_number_of_tasks_is_that_of_the_first_batch() -> None:
    assert check_tasks(None, None, default=3) == 3
    assert check_tasks(5, None, default=3) == 5
    assert check_tasks(None, 5, default=3) == 5
    assert check_tasks(5, 5, default=3) == 5
    wrong: list[tuple[Any, int | None]] = [(4, 5), (0, None), (-1, None), (TASKS_MAX + 1, None), ("5", None), (5.0, 5)]
    for given_tasks, fixed in wrong:
        with pytest.raises(ConfigError, match=f"tasks={given_tasks!r}"):
            check_tasks(given_tasks, fixed, default=3)


@pytest.mark.parametrize(
    ("job_id", "sink", "first_batch"),
    [
        ("", "s", 0),
        ("a/b", "s", 0),
        ("a" * 101, "s", 0),
        ("j", "", 0),
        ("j", "a-b", 0),
        ("j", "s", -1),
        ("j", "ü", 0),
        (5, "s", 0),
        ("j", None, 0),
        ("j", "s", "0"),
    ],
)
def test_names_are_those_of_topics(job_id: Any, sink: Any, first_batch: Any) -> None:
    with pytest.raises(ConfigError):
        SinkId(job_id, sink, first_batch)


def test_sinks_have_different_names() -> None:
    names = [SinkId(job, sink) for job in ("a", "a-b", "a-b-c") for sink in ("b", "c", "0", "1")]
    assert len({name.transactional_id(task) for name in names for task in range(2)}) == 2 * len(names)
    assert len({name.progress_topic for name in names}) == len(names)


@given(st.builds(TaskRows, st.integers(0, 1 << 62), st.text(), st.integers(0), st.integers(0)))
def test_a_record_is_decoded_as_it_was_encoded(rows: TaskRows) -> None:
    assert TaskRows.decode(rows.encode()) == rows


@given(st.binary() | st.sampled_from([b"{}", b"[]", b"1", b'{"version": 1}', b"[" * 100_000, None]))
def test_a_foreign_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(BatchRefused, match="no sink has written"):
        TaskRows.decode(value)


def test_a_record_of_another_version_is_refused() -> None:
    with pytest.raises(BatchRefused, match="records of version 2, this raylog knows 1"):
        TaskRows.decode(rows_of(1).encode().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(BatchRefused, match="no sink has written"):
        TaskRows.decode(replace(rows_of(1), batch_id=-1).encode())


# --- any interleaving, against a model of the transactions of one cluster

TASKS = 2
RUNNING_MAX = 4
"""Attempts that are begun and not ended, most of them zombies."""
Row = tuple[int, int, int]
"""Batch, task, number."""


def rows_in(batch_id: int, task: int) -> list[Row]:
    return [(batch_id, task, number) for number in range((1, 2, 0)[(batch_id + task) % 3])]


class Fenced(Exception):
    """Another producer with the transactional id was initialized."""


@dataclass
class ModelCluster:
    """What read_committed consumers see, and the epoch and open transaction of each transactional id."""

    rows: list[Row] = field(default_factory=list)
    progress: dict[int, TaskRows] = field(default_factory=dict)
    epochs: Counter[str] = field(default_factory=Counter)
    open: dict[str, list[Row | TaskRows]] = field(default_factory=dict)


class Attempt:
    """A process that runs a task, one step at a time; it may be stopped anywhere, and go on much later."""

    def __init__(self, cluster: ModelCluster, batch_id: int, task: int) -> None:
        self.cluster = cluster
        self.batch_id = batch_id
        self.task = task
        self.wanted = TaskRows(batch_id, f"{batch_id}/{task}", len(rows_in(batch_id, task)), TASKS)
        self.id = SINK.transactional_id(task)
        self.epoch = 0
        self.plan: Steps = steps(SINK, task, self.wanted)
        self.answer: TaskRows | None = None
        self.begun = False
        self.ended = self.succeeded = False

    def advance(self) -> None:
        try:
            step = self.plan.send(self.answer) if self.begun else next(self.plan)
            self.begun = True
            self.answer = self.carry_out(step)
        except StopIteration:
            self.ended = self.succeeded = True
        except (Fenced, BatchRefused):
            self.ended = True

    def carry_out(self, step: Step) -> TaskRows | None:
        cluster = self.cluster
        if step is Step.INITIALIZE:
            cluster.epochs[self.id] += 1
            self.epoch = cluster.epochs[self.id]
            cluster.open.pop(self.id, None)
        elif step is Step.READ_PROGRESS:
            return cluster.progress.get(self.task)
        elif step is not Step.BEGIN:
            if self.epoch != cluster.epochs[self.id]:
                raise Fenced
            transaction = cluster.open.setdefault(self.id, [])
            if step is Step.SEND_ROWS:
                transaction += rows_in(self.batch_id, self.task)
            elif step is Step.SEND_PROGRESS:
                transaction.append(self.wanted)
            elif step is Step.COMMIT:
                for each in cluster.open.pop(self.id):
                    if isinstance(each, TaskRows):
                        cluster.progress[self.task] = each
                    else:
                        cluster.rows.append(each)
        return None


class Interleavings(RuleBasedStateMachine):
    """The driver starts attempts of the current batch, and the next batch when all of its tasks are done.

    It may forget which have succeeded, as when it is killed. Attempts stop anywhere, for good or for a while.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ModelCluster()
        self.attempts: list[Attempt] = []
        self.batch_id = 0
        self.done: set[int] = set()

    @precondition(lambda self: len(self.running()) < RUNNING_MAX)
    @rule(task=st.integers(0, TASKS - 1))
    def start(self, task: int) -> None:
        self.attempts.append(Attempt(self.cluster, self.batch_id, task))

    def running(self) -> list[Attempt]:
        return [each for each in self.attempts if not each.ended]

    @precondition(lambda self: self.running())
    @rule(which=st.integers(0, RUNNING_MAX - 1), count=st.sampled_from([1, 2, 3, len(Step) + 1]))
    def advance(self, which: int, count: int) -> None:
        attempt = self.running()[which % len(self.running())]
        for _ in range(count):
            if not attempt.ended:
                attempt.advance()
        if attempt.succeeded and attempt.batch_id == self.batch_id:
            self.done.add(attempt.task)

    @precondition(lambda self: self.done)
    @rule()
    def the_driver_is_killed(self) -> None:
        self.done.clear()

    @precondition(lambda self: len(self.done) == TASKS)
    @rule()
    def next_batch(self) -> None:
        self.batch_id += 1
        self.done.clear()

    @invariant()
    def no_row_is_there_twice(self) -> None:
        assert len(set(self.cluster.rows)) == len(self.cluster.rows)

    @invariant()
    def what_counts_as_done_is_there(self) -> None:
        expected = [
            row
            for batch_id in range(self.batch_id + 1)
            for task in range(TASKS)
            if batch_id < self.batch_id or task in self.done
            for row in rows_in(batch_id, task)
        ]
        assert set(expected) <= set(self.cluster.rows)

    def teardown(self) -> None:
        """Last attempts, alone, succeed: nothing that happened before has blocked the batch for good."""
        for task in range(TASKS):
            attempt = Attempt(self.cluster, self.batch_id, task)
            while not attempt.ended:
                attempt.advance()
            assert attempt.succeeded
        expected = [row for batch in range(self.batch_id + 1) for task in range(TASKS) for row in rows_in(batch, task)]
        assert sorted(self.cluster.rows) == sorted(expected)


TestInterleavings = Interleavings.TestCase
