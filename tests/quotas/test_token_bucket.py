"""A token bucket permits its rate over any time, apart from one burst, and refills at that rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.quotas.rate import Sampling
from raylog.quotas.token_bucket import TokenBucket

SAMPLING = Sampling(11, 1000)


def test_it_is_full_at_first_and_holds_the_tokens_of_all_samples() -> None:
    bucket = TokenBucket(SAMPLING)
    assert bucket.tokens(5, 1_000_000) == 55
    assert bucket.tokens(5, 9_000_000) == 55


def test_missing_tokens_are_refilled_at_the_rate() -> None:
    bucket = TokenBucket(SAMPLING)
    bucket.take(115, 5, 0)  # 60 more than there are
    assert bucket.throttle_ms(5, 0) == 12_000
    assert bucket.throttle_ms(5, 11_000) == 1000
    assert bucket.throttle_ms(5, 12_000) == 0


def test_a_lower_rate_holds_fewer_tokens() -> None:
    bucket = TokenBucket(SAMPLING)
    assert bucket.tokens(10, 0) == 110
    assert bucket.tokens(1, 0) == 11


@given(st.floats(0.1, 100), st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 100)), max_size=50))
def test_what_is_taken_only_when_none_is_missing_stays_within_the_rate(
    rate: float, events: list[tuple[int, int]]
) -> None:
    bucket, now_ms, taken, most = TokenBucket(SAMPLING), 0, 0, 0
    for wait_ms, count in events:
        now_ms += wait_ms
        if not bucket.throttle_ms(rate, now_ms):
            bucket.take(count, rate, now_ms)
            taken += count
            most = max(most, count)
    assert taken <= rate * (now_ms + 2 * SAMPLING.span_ms) / 1000 + most
