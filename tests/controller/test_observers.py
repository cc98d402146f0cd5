"""The progress of observers of the metadata log is derived from their fetches."""

from __future__ import annotations

from raylog.controller.observers import SESSION_MS, Observers
from raylog.core.clock import Now
from raylog.core.ids import BrokerId, Offset

WALL_MS = 1_700_000_000_000


def at(ms: int) -> Now:
    return Now(ms, WALL_MS + ms)


def fetched(observers: Observers, offset: int, *, end: int, ms: int, broker_id: int = 1) -> None:
    observers.fetched(BrokerId(broker_id), Offset(offset), leader_end_offset=Offset(end), now=at(ms))


def seen(observers: Observers, *, ms: int) -> list[tuple[int, int, int, int]]:
    """(broker, log end offset, last fetch, last caught up), times as in `at`; -1 where it is not known."""
    return [
        (
            each.broker_id,
            each.log_end_offset,
            each.last_fetch_ms - WALL_MS,
            each.last_caught_up_ms - WALL_MS if each.last_caught_up_ms >= 0 else -1,
        )
        for each in observers.following(now_ms=ms)
    ]


def test_a_broker_without_a_fetch_is_no_observer() -> None:
    assert seen(Observers(), ms=0) == []


def test_the_log_end_offset_is_that_of_the_last_fetch() -> None:
    observers = Observers()
    fetched(observers, 9, end=9, ms=10, broker_id=2)
    fetched(observers, 4, end=9, ms=20, broker_id=1)
    assert seen(observers, ms=20) == [(1, 4, 20, -1), (2, 9, 10, 10)]
    fetched(observers, 9, end=12, ms=30, broker_id=1)
    assert seen(observers, ms=30)[0] == (1, 9, 30, 20)


def test_an_observer_at_the_log_end_is_caught_up_now() -> None:
    observers = Observers()
    fetched(observers, 0, end=0, ms=10)
    assert seen(observers, ms=10) == [(1, 0, 10, 10)]
    fetched(observers, 5, end=5, ms=20)
    assert seen(observers, ms=20) == [(1, 5, 20, 20)]


def test_an_observer_at_the_previous_log_end_was_caught_up_then() -> None:
    observers = Observers()
    fetched(observers, 0, end=5, ms=10)
    fetched(observers, 5, end=8, ms=20)
    fetched(observers, 8, end=9, ms=30)
    assert seen(observers, ms=30) == [(1, 8, 30, 20)]


def test_a_lagging_observer_keeps_the_time_when_it_was_caught_up() -> None:
    observers = Observers()
    fetched(observers, 5, end=5, ms=10)
    fetched(observers, 6, end=20, ms=20)
    assert seen(observers, ms=20)[0][3] == 10
    fetched(observers, 7, end=30, ms=30)
    assert seen(observers, ms=30) == [(1, 7, 30, 10)]


def test_an_observer_that_starts_again_has_log_end_offset_0() -> None:
    observers = Observers()
    fetched(observers, 5, end=5, ms=10)
    fetched(observers, 0, end=5, ms=20)
    assert seen(observers, ms=20) == [(1, 0, 20, 10)]


def test_a_silent_observer_expires() -> None:
    observers = Observers()
    fetched(observers, 5, end=5, ms=10, broker_id=1)
    fetched(observers, 5, end=5, ms=11, broker_id=2)
    assert len(seen(observers, ms=SESSION_MS + 9)) == 2
    assert [broker_id for broker_id, *_ in seen(observers, ms=SESSION_MS + 10)] == [2]
    fetched(observers, 3, end=9, ms=SESSION_MS + 20, broker_id=1)
    assert seen(observers, ms=SESSION_MS + 20)[0] == (1, 3, SESSION_MS + 20, -1)


def test_the_lowest_log_end_offset_of_several_brokers() -> None:
    observers = Observers()
    fetched(observers, 9, end=9, ms=10, broker_id=1)
    fetched(observers, 5, end=9, ms=20, broker_id=2)
    assert observers.min_log_end_offset([BrokerId(1)], Offset(7)) == 7
    assert observers.min_log_end_offset([BrokerId(1), BrokerId(2)], Offset(7)) == 5
    assert observers.min_log_end_offset([BrokerId(1), BrokerId(3)], Offset(7)) == -1, "of one nothing is known"
    assert observers.min_log_end_offset([], Offset(7)) == 7
