"""A worker's decisions: what is worked on, retried, given to the dead-letter topic, committed and undone."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.processing.records import Failure, OutputRecord, dead_letter, outputs_of
from raylog.client.processing.settings import AT_LEAST_ONCE, EXACTLY_ONCE, ProcessSettings
from raylog.client.processing.supervision import DEATHS_MAX, RESTART_BACKOFF_MAX_MS, WorkerLife
from raylog.client.processing.worker_state import COMMIT_BACKOFF_MS, IDLE_POLL_MS, REWINDS_MAX, Result, WorkerState
from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BAD = Failure("builtins.ValueError", "bad")
OUT = OutputRecord(b"out", topic="out")


def state_of(*, records_max: int = 100, **settings: Any) -> WorkerState:
    given: dict[str, Any] = {"topics": ("t",), "bootstrap_servers": "h:1", "group_id": "g", **settings}
    state = WorkerState(ProcessSettings(**given), worker=3, work="w", records_max=records_max, jitter=lambda: 1.0)
    state.assigned([A, B])
    return state


def records(tp: TopicPartition, *offsets: int) -> list[ConsumerRecord]:
    return [ConsumerRecord(*tp, offset, 1000 + offset, 0, b"k", b"%d" % offset, ()) for offset in offsets]


def work(state: WorkerState, now_ms: int, *bad: tuple[TopicPartition, int], count: int = 100) -> list[Result]:
    """Results for all work that can be taken, at most `count` of each partition, up to the first bad one."""
    results = []
    for batch in state.take_work(now_ms):
        for record in batch.records[:count]:
            failure = batch.refused.get(record.offset) or (BAD if (batch.lane.tp, record.offset) in bad else None)
            results.append(Result(batch.lane, record, (OUT,), failure))
            if failure:
                break
    return results


def sent(state: WorkerState, results: list[Result], now_ms: int = 0) -> list[int]:
    return [send.record.offset for send in state.worked(results, now_ms)]


class TestWork:
    def test_results_move_the_offsets(self) -> None:
        state = state_of()
        state.polled(records(A, 5, 6, 9) + records(B, 1))
        assert sorted(sent(state, work(state, 0))) == [1, 5, 6, 9]
        assert state.offsets() == {A: 10, B: 2}
        assert state.take_work(0) == []
        state.committed({A: 10, B: 2})
        assert (state.offsets(), state.counts.records, state.counts.outputs) == ({}, 4, 4)
        state.polled(records(A, 10))
        state.worked(work(state, 0), 0)
        assert state.counts.records == 4  # what is not committed does not count
        state.committed({A: 11})
        assert (state.counts.records, state.counts.outputs, state.counts.commits) == (5, 5, 2)

    def test_the_rest_of_a_time_slice_stays_pending(self) -> None:
        state = state_of()
        state.polled(records(A, 0, 1, 2))
        assert sent(state, work(state, 0, count=1)) == [0]
        assert sent(state, work(state, 0)) == [1, 2]

    def test_partitions_take_turns(self) -> None:
        state = state_of()
        state.polled(records(A, 0) + records(B, 0))
        assert {state.take_work(0)[0].lane.tp for _ in range(2)} == {A, B}

    def test_what_may_be_polled_is_bounded(self) -> None:
        state = state_of(records_max=3)
        assert (state.room, state.paused(0)) == (3, set())
        state.polled(records(A, 0, 1) + records(B, 0))
        assert (state.room, state.paused(0)) == (0, {A, B})
        state.worked(work(state, 0), 0)
        assert (state.room, state.paused(0)) == (3, set())


class TestFailures:
    def test_a_record_is_retried_while_its_partition_waits(self) -> None:
        state = state_of(retry_backoff_ms=100, retries=3)
        state.polled(records(A, 0, 1) + records(B, 0))
        assert sent(state, work(state, 0, (A, 0))) == [0]  # of B
        assert state.paused(50) == {A}
        assert (state.take_work(50), state.poll_ms(50)) == ([], 50)
        assert sent(state, work(state, 100, (A, 0)), 100) == []
        assert state.take_work(299) == []
        assert sent(state, work(state, 300), 300) == [0, 1]
        assert (state.counts.failures, state.failed) == (2, None)
        state.polled(records(A, 2))  # another record has all its attempts
        for now_ms in (300, 400, 600):
            state.worked(work(state, now_ms, (A, 2)), now_ms)
        assert (state.counts.failures, state.failed) == (5, None)

    def test_the_pause_is_bounded(self) -> None:
        state = state_of(retry_backoff_ms=100, retry_backoff_max_ms=150, retries=50)
        state.polled(records(A, 0))
        now_ms = 0
        for _ in range(50):
            state.worked(work(state, now_ms, (A, 0)), now_ms)
            assert state.take_work(now_ms + 99) == []
            now_ms += 150
        assert state.failed is None
        state.worked(work(state, now_ms, (A, 0)), now_ms)
        assert state.failed == (A, 0, BAD, 51)

    def test_without_a_dead_letter_topic_the_pool_stops_at_the_record(self) -> None:
        state = state_of(retries=0)
        state.polled(records(A, 7, 8) + records(B, 3))
        state.worked(work(state, 0, (A, 8)), 0)
        assert state.failed == (A, 8, BAD, 1)
        assert state.offsets() == {A: 8, B: 4}

    def test_a_dead_letter_says_why(self) -> None:
        state = state_of(retries=0, dead_letter_topic="dead")
        state.polled(records(A, 7, 8))
        [letter] = state.worked(work(state, 0, (A, 7)), 0)
        assert letter.failure == BAD
        assert (letter.output.topic, letter.output.key, letter.output.value) == ("dead", b"k", b"7")
        assert dict(letter.output.headers)["__connect.errors.offset"] == b"7"
        assert sent(state, work(state, 0)) == [8]
        state.committed(state.offsets())
        assert (state.counts.records, state.counts.dead_letters, state.counts.outputs) == (2, 1, 1)

    def test_an_output_that_is_refused_for_good_makes_its_record_fail(self) -> None:
        state = state_of(dead_letter_topic="dead", retries=5)
        state.polled(records(A, 0, 1, 2))
        sends = state.worked(work(state, 0), 0)
        state.refused(sends[1], BAD._replace(retriable=False))
        assert state.commit_due(0)
        assert state.rewind() == {A: 0}
        state.polled(records(A, 0, 1, 2))
        sends = state.worked(work(state, 0), 0) + state.worked(work(state, 0), 0)
        assert [(send.record.offset, send.failure is not None) for send in sends] == [(0, False), (1, True), (2, False)]
        assert dict(sends[1].output.headers)["__connect.errors.exception.message"] == b"bad"
        state.refused(sends[1], BAD)  # the dead letter too: it is sent once more without texts
        state.rewind()
        state.polled(records(A, 0, 1, 2))
        sends = state.worked(work(state, 0), 0)
        headers = dict(sends[1].output.headers)
        assert headers["__connect.errors.exception.class.name"] == b"builtins.ValueError"
        assert headers["__connect.errors.exception.message"] == b""
        assert state.failed is None
        state.refused(sends[1], BAD)
        assert state.failed is not None
        assert state.failed.offset == 1

    def test_a_dead_letter_of_a_refused_output_is_committed_before_the_records_behind_it(self) -> None:
        """Else each refusal behind it undoes it."""
        state = state_of(dead_letter_topic="dead", commit_interval_ms=60_000)
        state.polled(records(A, *range(50)))
        for offset in range(0, 50, 2):
            sends = state.worked(work(state, 0, count=50), 0)
            for send in sends[:2]:  # two that are known to be refused need no commit in between
                state.refused(send, BAD._replace(retriable=False))
            assert state.rewind()[A] == offset
            state.polled(records(A, *range(offset, 50)))
            assert sent(state, work(state, 0)) == [offset]
            assert not state.commit_due(0)
            assert sent(state, work(state, 0)) == [offset + 1]
            assert state.commit_due(0)
            state.committed(state.offsets())
        assert state.counts.dead_letters == 50

    def test_undone_for_new_refusals(self) -> None:
        """More often than REWINDS_MAX, without a commit: that comes to an end."""
        state = state_of(dead_letter_topic="dead")
        for offset in range(2 * REWINDS_MAX):
            state.polled(records(A, *range(offset + 1)))
            sends = [send for _ in range(offset + 1) for send in state.worked(work(state, 0), 0)]
            state.refused(sends[-1], BAD._replace(retriable=False))
            assert state.rewind() == {A: 0}


class TestCommits:
    def test_at_once_when_there_is_nothing_else_to_do(self) -> None:
        state = state_of(commit_interval_ms=1000)
        assert not state.commit_due(0)
        state.polled(records(A, 0, 1))
        state.worked(work(state, 0, count=1), 0)
        assert not state.commit_due(999)
        assert state.commit_due(1000)
        assert state.commit_due(0, ending=True)
        assert state.poll_ms(0) == 0
        state.worked(work(state, 0), 0)
        assert state.commit_due(0)

    def test_a_commit_that_failed_is_repeated_after_a_pause(self) -> None:
        state = state_of()
        state.polled(records(A, 0))
        state.worked(work(state, 0), 0)
        state.not_committed(0)
        assert not state.commit_due(COMMIT_BACKOFF_MS - 1)
        assert state.commit_due(COMMIT_BACKOFF_MS)
        assert state.poll_ms(0) <= IDLE_POLL_MS

    def test_what_was_done_during_a_commit_is_kept(self) -> None:
        state = state_of()
        state.polled(records(A, 0, 1))
        state.worked(work(state, 0, count=1), 0)
        offsets = state.offsets()
        state.worked(work(state, 0), 0)
        state.committed(offsets)
        assert state.offsets() == {A: 2}

    def test_what_was_undone_is_read_again_and_counts_once(self) -> None:
        state = state_of(delivery=EXACTLY_ONCE)
        state.polled(records(A, 0, 1, 2) + records(B, 0))
        state.worked(work(state, 0, count=1), 0)
        state.committed({A: 1, B: 1})
        taken = state.take_work(0)
        state.worked(work(state, 0), 0)
        assert state.rewind() == {A: 1}
        assert state.worked([Result(taken[0].lane, taken[0].records[0], (OUT,))], 0) == []  # of the former lane
        state.polled(records(A, 1, 2))
        state.worked(work(state, 0), 0)
        state.committed(state.offsets())
        assert state.counts.records == 4

    def test_undone_again_and_again(self) -> None:
        state = state_of()
        for number in range(2 * REWINDS_MAX):
            state.polled(records(A, 0))
            state.worked(work(state, 0), 0)
            if number == REWINDS_MAX:
                state.committed(state.offsets())
                state.polled(records(A, 0))
                state.worked(work(state, 0), 0)
            state.rewind()
        with pytest.raises(OverflowError):
            state.rewind()

    def test_undone_because_brokers_are_not_available(self) -> None:
        """It is worked on again after pauses, as often as necessary."""
        state = state_of(retry_backoff_ms=100, retry_backoff_max_ms=400)
        pauses = []
        now_ms = 0
        for _ in range(2 * REWINDS_MAX):
            state.polled(records(A, 0))
            state.worked(work(state, now_ms), now_ms)
            for retriable in (True, False):  # of another record of the same transaction
                state.undo(now_ms, retriable=retriable)
            assert state.commit_due(now_ms)
            assert state.rewind() == {A: 0}
            before_ms = now_ms
            while state.paused(now_ms):
                assert state.paused(now_ms) == {A}
                now_ms += 100
            pauses.append(now_ms - before_ms)
        assert pauses[:4] == [100, 200, 400, 400]
        assert set(pauses[4:]) == {400}
        state.polled(records(A, 0))
        state.worked(work(state, now_ms), now_ms)
        state.committed(state.offsets())
        for _ in range(REWINDS_MAX):
            state.undo(now_ms, retriable=False)
            state.rewind()
        with pytest.raises(OverflowError):
            state.rewind()


class TestPartitions:
    @pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, EXACTLY_ONCE])
    def test_results_for_a_partition_that_was_given_up_are_ignored(self, delivery: str) -> None:
        state = state_of(delivery=delivery)
        state.polled(records(A, 0, 1) + records(B, 0))
        results = work(state, 0)
        state.given_up([A])
        assert sent(state, results) == [0]  # of B
        assert state.offsets() == {B: 1}
        assert not state.must_rewind
        state.assigned([A])
        assert sent(state, results) == []

    def test_a_transaction_with_outputs_of_a_partition_that_was_given_up_is_undone(self) -> None:
        state = state_of(delivery=EXACTLY_ONCE)
        state.polled(records(A, 0) + records(B, 0))
        state.worked(work(state, 0), 0)
        state.given_up([A])
        assert state.must_rewind
        assert state.commit_due(0)
        assert state.rewind() == {B: 0}
        assert not state.must_rewind


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, []),
        (b"v", [(None, b"v")]),
        ("v", [(None, "v")]),
        ((b"k", b"v"), [(b"k", b"v")]),
        ((None, None), [(None, None)]),
        ([b"a", ("k", None)], [(None, b"a"), ("k", None)]),
        ((each for each in [b"a", b"b"]), [(None, b"a"), (None, b"b")]),
        ((OutputRecord(b"a"), OutputRecord(b"b")), [(None, b"a"), (None, b"b")]),
        ([], []),
    ],
)
def test_outputs(result: Any, expected: list[Any]) -> None:
    assert [(each.key, each.value) for each in outputs_of(result, "out")] == expected


@pytest.mark.parametrize("result", [1, 1.5, {"a": 1}, object(), [1], [[b"a"]], [None], True])
def test_what_is_no_output(result: Any) -> None:
    with pytest.raises(TypeError, match="it must return None, bytes, str"):
        outputs_of(result, "out")


def test_an_output_needs_a_topic() -> None:
    with pytest.raises(TypeError, match="no output topic: set output="):
        outputs_of(b"v", None)
    assert outputs_of(OutputRecord(b"v", topic="own"), None)[0].topic == "own"


def test_a_dead_letter_is_the_record_with_the_headers_of_kafka_connect() -> None:
    record = ConsumerRecord("t", 4, 7, 1007, 0, None, b"v", (("own", b"1"), ("none", None)))
    failure = Failure("builtins.ValueError", "bad", "at line 1")
    letter = dead_letter(record, failure, topic="dead", pool="g", worker=3, work="w")
    errors = {
        "topic": b"t",
        "partition": b"4",
        "offset": b"7",
        "connector.name": b"g",
        "task.id": b"3",
        "class.name": b"w",
        "exception.class.name": b"builtins.ValueError",
        "exception.message": b"bad",
        "exception.stacktrace": b"at line 1",
    }
    added = [(f"__connect.errors.{name}", value) for name, value in errors.items()]
    assert letter == OutputRecord(b"v", None, [*record.headers, *added], "dead", timestamp_ms=1007)
    undated = dead_letter(record._replace(timestamp_ms=-1), failure, topic="dead", pool="g", worker=3, work="w")
    assert undated.timestamp_ms == 0


def test_a_dead_letter_of_a_message_that_is_no_text() -> None:
    [record] = records(A, 0)
    letter = dead_letter(record, Failure("E", "\ud800"), topic="d", pool="p", worker=0, work="w")
    assert dict(letter.headers)["__connect.errors.exception.message"] == b"?"


def test_a_dead_letter_has_only_the_beginning_of_long_texts() -> None:
    [record] = records(A, 0)
    letter = dead_letter(record, Failure("E", "é" * 300_000, "x" * 300_000), topic="d", pool="p", worker=0, work="w")
    headers = dict(letter.headers)
    assert headers["__connect.errors.exception.message"] == "é".encode() * 4096
    assert headers["__connect.errors.exception.stacktrace"] == b"x" * 32 * 1024


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency=0: must be a whole number between 1 and 1000"),
        ({"concurrency": 10**6}, "concurrency=1000000: must be"),
        ({"concurrency": 2.0}, "concurrency=2.0: must be"),
        ({"concurrency": True}, "concurrency=True: must be"),
        ({"retries": -1}, "retries=-1: must be"),
        ({"commit_interval_ms": 10**12}, "commit_interval_ms=1000000000000: must be"),
        ({"topics": ()}, "topic="),
        ({"topics": ("",)}, "topic="),
        ({"delivery": "at_most_once"}, "delivery='at_most_once': must be 'at_least_once' or 'exactly_once'"),
        ({"group_id": ""}, "group_id='': must be set"),
        ({"output": ""}, "output='': must be the name of a topic"),
        ({"dead_letter_topic": "t"}, "dead_letter_topic='t': is one of the topics that are read"),
        ({"output": "t"}, "output='t': is one of the topics that are read"),
        ({"topics": ("a", "^im"), "dead_letter_topic": "images-failed"}, "'images-failed': is one of the topics"),
        ({"topics": ("^im.*",), "output": "images-done"}, "output='images-done': is one of the topics"),
        ({"consumer_config": {"enable_auto_commit": True}}, "consumer_config: enable.auto.commit cannot be set"),
        ({"consumer_config": {"large.message.enabled": True}}, "consumer_config: large.message.enabled cannot be set"),
        ({"producer_config": {"transactional.id": "x"}}, "producer_config: transactional.id cannot be set"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        state_of(**settings)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "config"),
    [
        ("^images-(?!failed)", {}),
        ("^s-failed", {}),
        ("^images", {"group.protocol": "consumer"}),  # the coordinator matches whole names
        ("^images", {"group_protocol": "consumer"}),
        ("^(", {}),  # refused by the consumer
    ],
)
def test_patterns_that_do_not_match_the_dead_letter_topic(pattern: str, config: dict[str, Any]) -> None:
    state_of(topics=(pattern,), dead_letter_topic="images-failed", consumer_config=config)


def test_a_worker_that_dies_without_progress_is_given_up() -> None:
    life = WorkerLife(lambda: 1.0)
    for _ in range(100):  # as long as it commits something in between
        assert life.died() == 100
        life.committed()
    pauses = [life.died() for _ in range(DEATHS_MAX)]
    assert pauses[:3] == [100, 200, 400]
    assert max(pause or 0 for pause in pauses) == RESTART_BACKOFF_MAX_MS
    assert life.died() is None
    assert life.restarts == 100 + DEATHS_MAX
