"""A sampled rate is what Kafka computes, and a client that waits for its throttle time stays within its quota."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.quotas.rate import SampledRate, Sampling

DEFAULT = Sampling(11, 1000)
samplings = st.builds(Sampling, st.integers(1, 12), st.integers(1, 3) | st.integers(100, 1000))


class NaiveRate:
    """Keeps every sample, as [start, time of the last event, sum]."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.samples: list[list[float]] = []

    def record(self, value: float, now_ms: int) -> None:
        current = self.alive(now_ms)
        if not current or now_ms - current[-1][0] >= self.sampling.window_ms:
            self.samples.append([now_ms, now_ms, 0])
        self.samples[-1][1] = now_ms
        self.samples[-1][2] += value

    def alive(self, now_ms: int) -> list[list[float]]:
        return [each for each in self.samples if now_ms - each[1] < self.sampling.samples * self.sampling.window_ms]

    def per_second(self, now_ms: int) -> float | None:
        alive = self.alive(now_ms)
        elapsed = now_ms - min((each[0] for each in alive), default=now_ms)
        whole = elapsed // self.sampling.window_ms
        elapsed += max(self.sampling.samples - 1 - whole, 0) * self.sampling.window_ms
        return sum(each[2] for each in alive) / elapsed * 1000 if elapsed else None


@given(samplings, st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 1000)), max_size=60))
def test_it_equals_a_naive_model(sampling: Sampling, events: list[tuple[int, int]]) -> None:
    rate, naive, now_ms = SampledRate(sampling), NaiveRate(sampling), 0
    for wait_ms, value in events:
        now_ms += wait_ms
        rate.record(value, now_ms)
        naive.record(value, now_ms)
        expected = naive.per_second(now_ms)
        if expected is not None:
            assert abs(rate.per_second(now_ms) - expected) < 1e-6
        assert len(rate._samples) <= sampling.samples + 1


@given(st.integers(100, 100_000), st.lists(st.floats(0.01, 1), min_size=30, max_size=60))
def test_a_client_that_waits_stays_within_its_quota(quota: int, seconds: list[float]) -> None:
    """Over all time, apart from one burst, with requests of up to a second of its quota."""
    rate, now_ms, total = SampledRate(DEFAULT), 1000, 0
    sizes = [int(quota * each) for each in seconds]
    for size in sizes:
        rate.record(size, now_ms)
        total += size
        now_ms += rate.throttle_ms(quota, now_ms) + 1
    burst = quota * DEFAULT.span_ms / 1000
    assert total <= quota * (now_ms - 1000) / 1000 + burst + max(sizes)


def test_the_throttle_time_brings_the_rate_down_to_the_quota() -> None:
    rate = SampledRate(DEFAULT)
    rate.record(20_000, 5000)  # 2000/s over 10 s
    assert rate.per_second(5000) == 2000
    assert rate.throttle_ms(2000, 5000) == 0
    assert rate.throttle_ms(1000, 5000) == 10_000
    assert rate.throttle_ms(1600, 5000) == 2500


def test_the_first_windows_count_as_whole_ones() -> None:
    rate = SampledRate(DEFAULT)
    rate.record(1000, 0)
    assert rate.per_second(0) == 100
    rate.record(1000, 500)
    assert rate.per_second(500) == 2000 / 10.5
    assert rate.per_second(10_900) == 2000 / 10.9
    assert rate.per_second(11_500) == 0


def test_what_is_taken_back_does_not_count() -> None:
    rate = SampledRate(DEFAULT)
    rate.record(1000, 0)
    rate.record(-1000, 0)
    assert rate.per_second(0) == 0


def test_a_single_sample_of_no_length_throttles_for_one_window() -> None:
    rate = SampledRate(Sampling(1, 1000))
    assert rate.throttle_ms(10, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(10, 0) == 1000
    assert rate.throttle_ms(10, 100) == 0
