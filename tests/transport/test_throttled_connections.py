"""Throttled connections are served again at their time, are forgotten when they close, and cost no others anything."""

from __future__ import annotations

from uuid import uuid4

from raylog.config.network import ConnectionLimits
from raylog.config.table import broker_configs
from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.quotas.client_quotas import Identity, Limit
from raylog.security.authenticator import NoSasl
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.throttled_connections import ThrottledConnections
from tests.support.calls import calls_of

BEGIN = Now(1000, 1000)
[LISTENER, *_] = plan_listeners(broker_configs({"listeners": "PLAINTEXT://127.0.0.1:0"}))


def connected() -> AcceptedConnection:
    return AcceptedConnection(
        LISTENER, "10.0.0.1", frame_bytes_max=100, unauthenticated_bytes_max=100, authenticator=NoSasl(), now=BEGIN
    )


class TestTimes:
    def test_each_ends_at_its_own_time(self) -> None:
        throttled, first, second = ThrottledConnections(), connected(), connected()
        throttled.add(second, 20)
        throttled.add(first, 10)
        assert (first.throttled, second.throttled, throttled.next_deadline_ms()) == (True, True, 10)
        assert throttled.take_ended(9) == []
        assert throttled.take_ended(19) == [first]
        assert (first.throttled, second.throttled, throttled.next_deadline_ms()) == (False, True, 20)
        assert throttled.take_ended(20) == [second]
        assert (len(throttled), throttled.next_deadline_ms()) == (0, None)

    def test_the_last_of_several_times_counts(self) -> None:
        throttled, connection = ThrottledConnections(), connected()
        for until_ms in (10, 30, 20):
            throttled.add(connection, until_ms)
        assert (len(throttled), throttled.take_ended(29), connection.throttled) == (1, [], True)
        assert throttled.take_ended(30) == [connection]

    def test_it_can_be_throttled_again(self) -> None:
        throttled, connection = ThrottledConnections(), connected()
        throttled.add(connection, 10)
        throttled.take_ended(10)
        throttled.add(connection, 15)
        assert (connection.throttled, throttled.take_ended(15)) == (True, [connection])


class TestClosed:
    def test_a_closed_connection_is_forgotten(self) -> None:
        throttled, closed, other = ThrottledConnections(), connected(), connected()
        throttled.add(closed, 10)
        throttled.add(other, 20)
        throttled.forget(closed)
        throttled.forget(closed)
        assert (len(throttled), throttled.next_deadline_ms()) == (1, 20)
        assert throttled.take_ended(20) == [other]

    def test_many_of_them_use_no_memory(self) -> None:
        throttled, connection = ThrottledConnections(), connected()
        for number in range(10_000):
            throttled.add(connection, 1_000_000 + number)
        assert len(throttled._ends) < 100
        for each in [connected() for _ in range(10_000)]:
            throttled.add(each, 1_000_000)
            throttled.forget(each)
        assert (len(throttled), len(throttled._ends) < 100) == (1, True)


class LimitedNode(Node):
    def connection_limit(self, address: str) -> Limit:
        return Limit(1.0, Identity(address, None), (("ip", None),))


def node_with(count: int) -> tuple[Node, list[AcceptedConnection]]:
    """With so many connections that are over the quota of their address."""
    limits = ConnectionLimits(1 << 20, connections_max=1 << 30, connections_per_host_max=1 << 30, idle_ms=-1)
    node = LimitedNode(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=BEGIN)
    opened = [node.connection_opened(LISTENER, "10.0.0.1", BEGIN) for _ in range(count)]
    return node, [each for each in opened if each is not None]


def test_a_crowd_over_its_quota_is_closed_in_time_that_grows_with_it_only() -> None:
    def work_for(count: int) -> int:
        node, _ = node_with(count)
        return calls_of(lambda: node.tick(Now(BEGIN.monotonic_ms + 60_000, BEGIN.wall_ms + 60_000)))

    assert work_for(1600) < 6 * work_for(400)
