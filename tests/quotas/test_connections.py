"""New connections beyond a rate wait or are closed, and those of other addresses and listeners are not affected."""

from __future__ import annotations

from raylog.quotas.client_quotas import CONNECTION_CREATION_RATE, Identity, Limit
from raylog.quotas.connections import AT_ONCE, REFUSED, ConnectionRates, Delay
from raylog.quotas.rate import Sampling
from raylog.quotas.usage import Throttled

SAMPLING = Sampling(10, 1000)


def rates(rate_max: int = 1 << 31, **listeners: int) -> ConnectionRates:
    return ConnectionRates(SAMPLING, rate_max=rate_max, listener_rates=listeners)


def of(address: str, value: float = 1.0) -> Limit:
    return Limit(value, Identity(address, None), (("ip", None),))


def test_connections_of_an_address_over_its_quota_are_closed_later() -> None:
    found = rates()
    opened = [found.opened("A", "1.1.1.1", of("1.1.1.1"), 0) for _ in range(12)]
    assert opened == [AT_ONCE] * 10 + [Delay(1000, closes=True)] * 2
    assert found.opened("A", "2.2.2.2", of("2.2.2.2"), 0) == AT_ONCE
    assert found.opened("A", "3.3.3.3", None, 0) == AT_ONCE
    assert found.opened("A", "1.1.1.1", of("1.1.1.1"), 500) == Delay(500, closes=True)
    assert found.opened("A", "1.1.1.1", of("1.1.1.1"), 1000) == AT_ONCE
    assert found.throttled.all() == [Throttled(CONNECTION_CREATION_RATE, Identity("1.1.1.1", None), 3, 2500)]


def test_connections_over_the_rate_of_the_broker_wait_for_their_turn() -> None:
    found = rates(2)
    opened = [found.opened("A", "1.1.1.1", None, 0) for _ in range(60)]
    assert opened[:20] == [AT_ONCE] * 20
    assert opened[20:40] == [Delay(500 * number, closes=False) for number in range(1, 21)]
    assert opened[40:] == [REFUSED] * 20, "they would wait for more than ten seconds, and are not counted"
    assert found.opened("A", "1.1.1.1", None, 500) == Delay(10_000, closes=False)


def test_a_listener_has_its_own_rate() -> None:
    found = rates(A=1)
    opened = [found.opened("A", "1.1.1.1", None, 0) for _ in range(11)]
    assert opened[10] == Delay(1000, closes=False)
    assert found.opened("B", "1.1.1.1", None, 0) == AT_ONCE


def test_what_an_address_may_not_open_does_not_use_the_rate_of_the_broker() -> None:
    found = rates(2)
    for _ in range(100):
        found.opened("A", "1.1.1.1", of("1.1.1.1"), 0)
    assert [found.opened("A", "2.2.2.2", None, 0) for _ in range(10)] == [AT_ONCE] * 10
