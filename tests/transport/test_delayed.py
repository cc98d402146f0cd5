"""A delayed operation ends exactly once: completed, expired or dropped, and leaves nothing behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.transport.delayed import DelayedOperations


class Waiting:
    def __init__(self, deadline_ms: int, needs: int) -> None:
        self.deadline_ms = deadline_ms
        self.needs = needs
        self.ended = 0

    def try_complete(self, grown_bytes: int) -> bool:
        self.needs -= grown_bytes
        if self.needs > 0:
            return False
        self.ended += 1
        return True

    def complete(self) -> None:
        self.ended += 1


def test_it_completes_when_enough_bytes_have_arrived() -> None:
    delayed, waiting = DelayedOperations(), Waiting(100, 10)
    delayed.park(waiting, ["a", "b"])
    delayed.grown("a", 4)
    delayed.grown("other", 100)
    assert waiting.ended == 0
    delayed.grown("b", 6)
    assert waiting.ended == 1
    delayed.expire(1000)
    assert waiting.ended == 1
    assert delayed.next_deadline_ms() is None


def test_it_may_wait_for_a_key_twice() -> None:
    """A client may name a partition twice in one request."""
    delayed, waiting = DelayedOperations(), Waiting(100, 10)
    delayed.park(waiting, ["a", "b", "a"])
    delayed.grown("a", 10)
    assert (waiting.ended, len(delayed)) == (1, 0)


def test_it_expires_exactly_at_its_deadline() -> None:
    delayed, waiting = DelayedOperations(), Waiting(100, 10)
    delayed.park(waiting, ["a"])
    assert delayed.next_deadline_ms() == 100
    delayed.expire(99)
    assert waiting.ended == 0
    delayed.expire(100)
    assert waiting.ended == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("park"), st.integers(0, 3), st.integers(0, 200)),
            st.tuples(st.just("grow"), st.integers(0, 3), st.integers(0, 20)),
            st.tuples(st.just("drop"), st.integers(0, 30), st.just(0)),
            st.tuples(st.just("expire"), st.integers(0, 200), st.just(0)),
        ),
        max_size=120,
    )
)
def test_operations_are_not_lost_completed_twice_or_leaked(steps: list[tuple[str, int, int]]) -> None:
    delayed = DelayedOperations()
    parked: dict[int, Waiting] = {}
    dropped: set[int] = set()
    for kind, first, second in steps:
        if kind == "park":
            waiting = Waiting(second, 15)
            parked[delayed.park(waiting, [first, first + 1])] = waiting
        elif kind == "grow":
            delayed.grown(first, second)
        elif kind == "expire":
            delayed.expire(first)
            assert all(
                waiting.ended
                for ticket, waiting in parked.items()
                if waiting.deadline_ms <= first and ticket not in dropped
            )
        elif first in parked:
            if not parked[first].ended:
                dropped.add(first)
            delayed.drop(first)
        assert all(waiting.ended <= 1 for waiting in parked.values())
    alive = [ticket for ticket, waiting in parked.items() if not waiting.ended and ticket not in dropped]
    assert len(delayed) == len(alive)
    delayed.expire(1000)
    assert len(delayed) == 0
    assert delayed.next_deadline_ms() is None
    assert delayed._watchers == {}
    assert all(parked[ticket].ended == 0 for ticket in dropped)


class Nested(Waiting):
    """Its attempt makes news under the key that it watches, as a share-partition that is loaded while it is read."""

    def __init__(self, delayed: DelayedOperations) -> None:
        super().__init__(100, 0)
        self.delayed = delayed

    def try_complete(self, grown_bytes: int) -> bool:
        self.delayed.grown("a", 1)
        return super().try_complete(grown_bytes)


def test_what_an_attempt_causes_itself_does_not_complete_it_twice() -> None:
    delayed = DelayedOperations()
    nested, other = Nested(delayed), Waiting(100, 1)
    delayed.park(nested, ["a"])
    delayed.park(other, ["a"])
    delayed.grown("a", 0)
    assert (nested.ended, other.ended, len(delayed)) == (1, 1, 0)
