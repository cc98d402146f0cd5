"""Over any period a throttled replica uses at most its rate, and is not delayed longer than necessary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.replication.throttle import BURST_MS, RETRY_MS, ReplicationThrottle, is_throttled

RATE = 1000


def test_a_topic_lists_replicas_or_all() -> None:
    assert is_throttled(("*",), 3, 7)  # type: ignore[arg-type]
    assert is_throttled(("1:2", "3:7"), 3, 7)  # type: ignore[arg-type]
    assert not is_throttled(("7:3", "3:70", "13:7"), 3, 7)  # type: ignore[arg-type]
    assert not is_throttled((), 3, 7)  # type: ignore[arg-type]


def test_an_excess_is_waited_for() -> None:
    throttle = ReplicationThrottle(now_ms=0)
    assert throttle.free_ms(rate_bytes_per_sec=RATE, now_ms=0) == 0
    throttle.used(3000, rate_bytes_per_sec=RATE, now_ms=0)  # one second's worth of it was there
    assert throttle.free_ms(rate_bytes_per_sec=RATE, now_ms=0) == 2001
    assert throttle.free_ms(rate_bytes_per_sec=RATE, now_ms=2000) == 2001
    assert throttle.free_ms(rate_bytes_per_sec=RATE, now_ms=2001) == 2001


def test_a_time_in_the_past_changes_nothing() -> None:
    throttle = ReplicationThrottle(now_ms=0)
    throttle.used(3000, rate_bytes_per_sec=RATE, now_ms=500)
    assert throttle.free_ms(rate_bytes_per_sec=RATE, now_ms=2000) == 2501
    throttle.used(0, rate_bytes_per_sec=RATE, now_ms=100)
    assert throttle.free_ms(rate_bytes_per_sec=RATE, now_ms=2000) == 2501


def test_a_new_rate_applies_from_now_on() -> None:
    throttle = ReplicationThrottle(now_ms=0)
    throttle.used(101_000, rate_bytes_per_sec=RATE, now_ms=0)
    assert throttle.free_ms(rate_bytes_per_sec=RATE, now_ms=0) == 100_001
    assert throttle.free_ms(rate_bytes_per_sec=100 * RATE, now_ms=0) == 1001
    assert throttle.free_ms(rate_bytes_per_sec=0, now_ms=5) == 5 + RETRY_MS
    assert throttle.free_ms(rate_bytes_per_sec=(1 << 63) - 1, now_ms=7) == 7


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5000)), max_size=40),
    st.integers(1, 10_000),
)
def test_over_any_period_the_rate_is_not_exceeded(steps: list[tuple[int, int]], rate: int) -> None:
    """Somebody who asks at odd times and takes odd amounts gets the rate, a second's worth and one answer at most."""
    throttle = ReplicationThrottle(now_ms=0)
    now_ms, taken = 0, []
    for pause_ms, size_bytes in steps:
        now_ms += pause_ms
        free_ms = throttle.free_ms(rate_bytes_per_sec=rate, now_ms=now_ms)
        if free_ms > now_ms:
            assert throttle.free_ms(rate_bytes_per_sec=rate, now_ms=free_ms - 1) > free_ms - 1
            now_ms = free_ms
            assert throttle.free_ms(rate_bytes_per_sec=rate, now_ms=now_ms) == now_ms
        throttle.used(size_bytes, rate_bytes_per_sec=rate, now_ms=now_ms)
        taken.append((now_ms, size_bytes))
    for first in range(len(taken)):
        total = 0
        for at_ms, size_bytes in taken[first:]:
            elapsed_ms = at_ms - taken[first][0]
            assert 1000 * total <= rate * (elapsed_ms + BURST_MS)
            total += size_bytes
