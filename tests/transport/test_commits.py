"""A wait ends exactly once, by commit, deadline or lost leadership; a slow log delays only waits that depend on it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode
from raylog.transport.commits import CommitPoint, CommitQueues

LOST = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Ended:
    """Notes how waits ended."""

    def __init__(self) -> None:
        self.codes: list[list[ErrorCode]] = []

    def __call__(self, codes: Sequence[ErrorCode]) -> None:
        self.codes.append(list(codes))


def test_a_wait_ends_when_its_offset_is_committed() -> None:
    queues, ended = CommitQueues(), Ended()
    queues.wait([CommitPoint("a", 10)], deadline_ms=None, done=ended)
    queues.committed("a", 9)
    queues.committed("b", 99)
    assert ended.codes == []
    queues.committed("a", 10)
    assert ended.codes == [[ErrorCode.NONE]]
    assert (len(queues), queues.logs) == (0, [])


def test_a_request_for_several_logs_waits_for_all_and_gets_each_result() -> None:
    queues, ended = CommitQueues(), Ended()
    points = [CommitPoint("a", 1), CommitPoint("b", 1), CommitPoint("c", 1)]
    queues.wait(points, deadline_ms=5, done=ended)
    queues.committed("b", 1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    queues.lost("c", LOST)
    assert ended.codes == []
    queues.expire(5)
    assert ended.codes == [[ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, LOST]]
    queues.committed("a", 1)
    assert len(ended.codes) == 1
    assert queues.logs == []


def test_expired_waits_on_a_stalled_log_are_freed() -> None:
    queues, ended = CommitQueues(), Ended()
    for number in range(1000):
        queues.wait([CommitPoint("a", number)], deadline_ms=number, done=ended)
        queues.expire(number)
    assert (len(ended.codes), len(queues), queues.logs) == (1000, 0, [])
    assert queues.next_deadline_ms() is None


def test_the_next_deadline_is_that_of_the_first_waiting_request() -> None:
    queues, ended = CommitQueues(), Ended()
    queues.wait([CommitPoint("a", 1)], deadline_ms=5, done=ended)
    queues.wait([CommitPoint("a", 2)], deadline_ms=7, done=ended)
    assert queues.next_deadline_ms() == 5
    queues.committed("a", 1)
    assert queues.next_deadline_ms() == 7


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("wait"),
                st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), min_size=1, max_size=4),
                st.integers(0, 30),
            ),
            st.tuples(st.just("committed"), st.sampled_from("abc"), st.integers(0, 25)),
            st.tuples(st.just("lost"), st.sampled_from("abc"), st.none()),
            st.tuples(st.just("expire"), st.just(""), st.integers(0, 35)),
        ),
        max_size=40,
    )
)
def test_against_a_naive_model(steps: list[tuple[str, object, object]]) -> None:
    queues = CommitQueues()
    ended: dict[int, list[ErrorCode]] = {}
    model: dict[int, tuple[list[tuple[str, int]], list[ErrorCode | None], int]] = {}

    def settle(number: int, code: ErrorCode, at: Sequence[int]) -> None:
        _, codes, _ = model[number]
        for index in at:
            if codes[index] is None:
                codes[index] = code

    for number, (what, first, second) in enumerate(steps):
        open_waits = [each for each in model if each not in expected(model)]
        if what == "wait":
            pairs: list[tuple[str, int]] = list(first)  # type: ignore[call-overload]
            points = [CommitPoint(log, offset) for log, offset in pairs]
            model[number] = (pairs, [None] * len(points), second)  # type: ignore[assignment]
            queues.wait(points, deadline_ms=second, done=_note(ended, number))  # type: ignore[arg-type]
        elif what == "committed":
            queues.committed(first, second)  # type: ignore[arg-type]
            for each in open_waits:
                at = [i for i, (log, offset) in enumerate(model[each][0]) if log == first and offset <= second]  # type: ignore[operator]
                settle(each, ErrorCode.NONE, at)
        elif what == "lost":
            queues.lost(first, LOST)
            for each in open_waits:
                settle(each, LOST, [i for i, (log, _) in enumerate(model[each][0]) if log == first])
        else:
            queues.expire(second)  # type: ignore[arg-type]
            for each in open_waits:
                if model[each][2] <= second:  # type: ignore[operator]
                    settle(each, ErrorCode.REQUEST_TIMED_OUT, range(len(model[each][0])))
    assert ended == expected(model)
    assert len(queues) == len(model) - len(ended)


def _note(ended: dict[int, list[ErrorCode]], number: int) -> Ended:
    class Note(Ended):
        def __call__(self, codes: Sequence[ErrorCode]) -> None:
            assert number not in ended, "ended twice"
            ended[number] = list(codes)

    return Note()


def expected(
    model: dict[int, tuple[list[tuple[str, int]], list[ErrorCode | None], int]],
) -> dict[int, list[ErrorCode | None]]:
    return {number: codes for number, (_, codes, _) in model.items() if None not in codes}
