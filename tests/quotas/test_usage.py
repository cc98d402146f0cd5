"""What clients use is measured for each identity, in memory that strangers cannot fill."""

from __future__ import annotations

import pytest

from raylog.quotas.client_quotas import (
    CONSUMER_BYTE_RATE,
    NAME_CHARACTERS_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    Identity,
    Limit,
    entity,
)
from raylog.quotas.client_usage import KNOWN_CLIENTS_MAX, ClientUsage
from raylog.quotas.rate import SampledRate, Sampling
from raylog.quotas.token_bucket import TokenBucket
from raylog.quotas.usage import Meters, Throttled, ThrottledTime

SAMPLING = Sampling(11, 1000)
RULE = entity({"client-id": None})


def limit(client_id: str) -> Limit:
    return Limit(100, Identity(None, client_id), RULE)


def meters(most: int) -> Meters[SampledRate]:
    return Meters(lambda: SampledRate(SAMPLING), span_ms=SAMPLING.span_ms, meters_max=most)


class TestMeters:
    def test_identities_are_measured_apart(self) -> None:
        found = meters(10)
        assert found.of(limit("a"), 0) is found.of(limit("a"), 5)
        assert found.of(limit("a"), 0) is not found.of(limit("b"), 0)

    def test_strangers_share_one_measurement_when_there_is_no_room(self) -> None:
        found = meters(10)
        own = found.of(limit("own"), 0)
        strangers = {id(found.of(limit(f"c{number}"), 0)) for number in range(1000)}
        assert len(found) == 11
        assert len(strangers) == 10, "nine of their own, and the shared one"
        assert found.of(limit("own"), 0) is own, "it was not displaced"
        assert found.of(limit("c999"), 0) is found.of(limit("c998"), 0)

    def test_idle_identities_are_forgotten_when_they_would_measure_nothing(self) -> None:
        found = meters(10)
        idle, busy = found.of(limit("idle"), 0), found.of(limit("busy"), 0)
        found.of(limit("busy"), SAMPLING.span_ms - 1)
        found.of(limit("new"), SAMPLING.span_ms)
        assert len(found) == 2
        assert found.of(limit("busy"), SAMPLING.span_ms) is busy
        assert found.of(limit("idle"), SAMPLING.span_ms) is not idle

    def test_an_identity_that_owes_tokens_is_not_forgotten(self) -> None:
        found = Meters(lambda: TokenBucket(SAMPLING), span_ms=SAMPLING.span_ms)
        rate, debtor = 1.0, limit("debtor")
        found.of(debtor, 0).take(111, rate, 0)
        assert found.of(debtor, 0).throttle_ms(rate, 0) == 100_000
        now_ms = 0
        for number in range(9):
            now_ms += SAMPLING.span_ms
            found.of(limit(f"other {number}"), now_ms)
        assert found.of(debtor, now_ms).throttle_ms(rate, now_ms) == 1000
        now_ms += 2 * SAMPLING.span_ms
        found.of(limit("another one"), now_ms)
        assert len(found) == 1, "the former debts are paid"


class TestThrottledTime:
    def test_times_are_added_up_for_each_identity(self) -> None:
        throttled, alice = ThrottledTime(), Identity("alice", None)
        throttled.add(PRODUCER_BYTE_RATE, alice, 10)
        throttled.add(PRODUCER_BYTE_RATE, alice, 5)
        throttled.add(CONSUMER_BYTE_RATE, alice, 1)
        assert throttled.all() == [
            Throttled(CONSUMER_BYTE_RATE, alice, 1, 1),
            Throttled(PRODUCER_BYTE_RATE, alice, 2, 15),
        ]

    def test_those_throttled_last_are_kept(self) -> None:
        throttled = ThrottledTime(identities_max=2)
        for name in ("a", "b", "a", "c"):
            throttled.add(PRODUCER_BYTE_RATE, Identity(name, None), 1)
        assert [each.identity.user for each in throttled.all()] == ["a", "c"]


def usage(**quotas: float) -> ClientUsage:
    """Of a cluster where user u has these quotas."""
    configured = ClientQuotas()
    for key, value in quotas.items():
        configured.set(entity({"user": "u"}), key, value)
    made = ClientUsage(SAMPLING)
    made.quotas_changed(configured)
    return made


class TestClientUsage:
    def test_a_user_cannot_evade_its_quota_by_other_client_ids(self) -> None:
        used = usage(producer_byte_rate=100)
        throttled = []
        for number in range(50):
            limits = used.limits("u", f"client {number}")
            assert limits is not None
            assert limits.producer is not None
            throttled.append(used.charge_produced(limits.producer, 100, 0))
        assert throttled[:10] == [0] * 10, "1000 bytes over 10 s"
        assert throttled[10:] == [1000 * number for number in range(1, 41)]
        assert [each.identity for each in used.throttled.all()] == [Identity("u", None)]

    def test_clients_without_a_quota_have_no_limits(self) -> None:
        used = usage(producer_byte_rate=100)
        assert used.limits("other", "c") is None
        assert not used.measures_time

    def test_the_memory_for_known_clients_is_bounded(self) -> None:
        used = usage(producer_byte_rate=100)
        for number in range(KNOWN_CLIENTS_MAX + 10):
            used.limits("other", f"c{number}")
        assert len(used._known) == 10

    def test_long_names_of_strangers_are_not_kept(self) -> None:
        configured = ClientQuotas()
        configured.set(entity({"client-id": None, "user": None}), PRODUCER_BYTE_RATE, 100)
        used = ClientUsage(SAMPLING)
        used.quotas_changed(configured)
        for number in range(20):
            limits = used.limits("u" * 32_767, f"{number:02}{'x' * 32_765}")
            assert limits is not None
            assert limits.producer is not None
            used.charge_produced(limits.producer, 5000, 0)
        kept = [*used._known, *(each.identity for each in used.throttled.all())]
        kept += used._meters[PRODUCER_BYTE_RATE]._used  # type: ignore[arg-type]
        assert len(kept) == 60
        assert max(len(str(name)) for names in kept for name in names) == NAME_CHARACTERS_MAX + 1

    def test_bytes_that_a_consumer_may_not_have_are_not_charged(self) -> None:
        used = usage(consumer_byte_rate=100)
        limits = used.limits("u", "c")
        assert limits is not None
        assert limits.consumer is not None
        assert used.fetched_bytes_max(limits.consumer) == 1000
        assert used.charge_fetched(limits.consumer, 900, 0) == (0, True)
        assert used.charge_fetched(limits.consumer, 300, 0) == (2000, False)
        assert used.charge_fetched(limits.consumer, 100, 0) == (0, True)

    @pytest.mark.parametrize("size_bytes", [100, 2500, 9000])
    def test_what_is_delivered_in_any_case_is_charged_in_any_case(self, size_bytes: int) -> None:
        used = usage(consumer_byte_rate=1000)
        limits = used.limits("u", "c")
        assert limits is not None
        assert limits.consumer is not None
        now_ms = delivered = 0
        while now_ms < 1_000_000:
            now_ms += used.charge_delivered(limits.consumer, size_bytes, now_ms) + 1
            delivered += size_bytes
        assert 0.9 < delivered / now_ms < 1.1, "1000 bytes a second"

    def test_a_batch_larger_than_the_quota_of_all_samples_passes_alone(self) -> None:
        used = usage(consumer_byte_rate=100)
        limits = used.limits("u", "c")
        assert limits is not None
        assert limits.consumer is not None
        assert used.charge_fetched(limits.consumer, 5000, 0) == (40_000, True)
        assert not used.charge_fetched(limits.consumer, 5000, 5000)[1]
        assert used.charge_fetched(limits.consumer, 5000, 11_000)[1], "the first one no longer counts"

    def test_request_time_throttles_for_one_window_at_most(self) -> None:
        used = usage(request_percentage=10)
        limits = used.limits("u", "c")
        assert used.measures_time
        assert limits is not None
        assert limits.request is not None
        assert used.charge_time(limits.request, 900_000_000, 0) == 0, "0.9 s in 10 s is 9 percent"
        assert used.charge_time(limits.request, 101_000_000, 0) == 10
        used.add_time(limits.request, 5_000_000_000, 0)
        assert used.charge_time(limits.request, 0, 0) == 1000
        assert [each.key for each in used.throttled.all()] == [REQUEST_PERCENTAGE]
