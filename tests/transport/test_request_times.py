"""Every request is counted once, with the durations of its phases, whatever they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from raylog.protocol.registry import FETCH, PRODUCE, api_for
from raylog.transport import request_times
from raylog.transport.request_times import EXACT_BELOW, NS_PER_TENTH, RequestTimes, Seen


class Request(NamedTuple):
    api_key: int
    version: int
    internal: bool
    total: int
    local: int
    queue_ms: int
    throttle_ms: int


@st.composite
def requests(draw: st.DrawFn) -> Request:
    total = draw(st.integers(0, 2 * EXACT_BELOW) | st.integers(0, 10**9))
    rarely = st.just(0) | st.integers(0, 10**6)
    key, version = draw(st.sampled_from([PRODUCE, FETCH])), draw(st.integers(0, 32_767))
    return Request(key, version, draw(st.booleans()), total, draw(st.integers(0, total)), draw(rarely), draw(rarely))


def exchange(request: Request) -> Any:
    return SimpleNamespace(
        began_ns=5,
        local_ns=-1 if request.local == request.total else request.local * NS_PER_TENTH,
        queue_ms=request.queue_ms,
        throttle_ms=request.throttle_ms,
        spec=api_for(request.api_key),
        api_version=request.version,
        internal=request.internal,
    )


def near(shown_ms: float, tenths: int) -> bool:
    """Durations of 10 ms and more are shown with two digits, rounded down."""
    return 0.9 * tenths <= 10 * shown_ms <= tenths + 1e-6


@given(st.lists(requests(), max_size=20))
def test_every_request_is_counted_with_its_times(given: list[Request]) -> None:
    times = RequestTimes()
    for request in given:
        times.record(exchange(request), 5 + request.total * NS_PER_TENTH)
    names = {True: "FetchFollower", False: "FetchConsumer"}
    expected = Counter((names[each.internal] if each.api_key == FETCH else "Produce", each.version) for each in given)
    assert times.requests() == expected
    phases: list[tuple[Callable[[Seen], int], Callable[[Request], int]]] = [
        (lambda seen: seen.local, lambda each: each.local),
        (lambda seen: seen.remote, lambda each: each.total - each.local),
        (lambda seen: seen.queue, lambda each: 10 * each.queue_ms),
        (lambda seen: seen.throttle, lambda each: 10 * each.throttle_ms),
    ]
    for of, tenths in phases:
        shown = dict(times.durations_ms(of))
        for name, key in (("Produce", PRODUCE), ("Fetch", FETCH)):
            wanted = sorted(tenths(each) for each in given if each.api_key == key)
            found = sorted(shown.get(name, Counter()).elements())
            assert len(found) == len(wanted)
            assert all(near(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_window_ends_when_there_are_too_many_different_requests(monkeypatch: Any) -> None:
    monkeypatch.setattr(request_times, "DISTINCT_MAX", 10)
    times = RequestTimes()
    for total in range(50):
        times.record(exchange(Request(PRODUCE, 11, False, total, total, 0, 0)), 5 + total * NS_PER_TENTH)
    assert times.requests() == {("Produce", 11): 50}
    ((_, durations),) = times.durations_ms(lambda seen: seen.local)
    assert durations.total() <= 20
