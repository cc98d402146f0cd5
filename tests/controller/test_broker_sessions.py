"""A broker session ends when its connection is lost or no heartbeat has arrived within the timeout."""

from __future__ import annotations

import pytest

from raylog.controller.broker_sessions import BrokerPresence, BrokerSessions
from raylog.core.ids import BrokerId

ZERO, ONE = BrokerId(0), BrokerId(1)


@pytest.fixture
def sessions() -> BrokerSessions:
    sessions = BrokerSessions(timeout_ms=1000)
    sessions.heartbeat_received(ZERO, "connection of 0", now_ms=0)
    sessions.heartbeat_received(ONE, "connection of 1", now_ms=300)
    return sessions


def test_a_session_expires_exactly_at_its_timeout(sessions: BrokerSessions) -> None:
    assert sessions.next_expiry_ms() == 1000
    assert sessions.expire(now_ms=999) == []
    assert sessions.expire(now_ms=1000) == [ZERO]
    assert (sessions.is_alive(ZERO), sessions.is_alive(ONE)) == (False, True)
    assert sessions.expire(now_ms=1000) == []
    assert sessions.next_expiry_ms() == 1300


def test_each_heartbeat_renews_the_session(sessions: BrokerSessions) -> None:
    sessions.heartbeat_received(ZERO, "connection of 0", now_ms=900)
    assert sessions.expire(now_ms=1800) == [ONE]
    assert sessions.expire(now_ms=1900) == [ZERO]
    assert sessions.next_expiry_ms() is None


def test_a_lost_connection_ends_its_own_session_only(sessions: BrokerSessions) -> None:
    assert sessions.connection_lost("somebody else's") == []
    assert sessions.connection_lost("connection of 0") == [ZERO]
    assert not sessions.is_alive(ZERO)
    assert sessions.connection_lost("connection of 0") == []


def test_a_superseded_connection_ends_no_session(sessions: BrokerSessions) -> None:
    sessions.heartbeat_received(ZERO, "newer connection of 0", now_ms=400)
    assert sessions.connection_lost("connection of 0") == []
    assert sessions.is_alive(ZERO)


def test_a_new_controller_starts_sessions_without_considering_brokers_alive() -> None:
    sessions = BrokerSessions(timeout_ms=1000)
    sessions.start_all([ZERO, ONE], now_ms=50)
    assert not sessions.is_alive(ZERO)
    sessions.heartbeat_received(ONE, "c", now_ms=60)
    assert sessions.is_alive(ONE)
    assert sessions.expire(now_ms=1049) == []
    assert sessions.expire(now_ms=1050) == [ZERO]


def test_brokers_that_disconnected_from_a_standby_expire_at_once() -> None:
    presence = BrokerPresence()
    presence.heartbeat_received(ZERO, "connection of 0")
    presence.heartbeat_received(ONE, "connection of 1")
    presence.connection_lost("connection of 0")
    presence.connection_lost("connection of 1")
    presence.heartbeat_received(ONE, "another of 1")
    presence.connection_lost("connection of 1")
    assert presence.disconnected == {ZERO}
    sessions = BrokerSessions(timeout_ms=1000)
    sessions.start_all([ZERO, ONE], now_ms=500, disconnected=presence.disconnected)
    assert sessions.expire(now_ms=500) == [ZERO]
    assert sessions.expire(now_ms=1499) == []
    assert sessions.expire(now_ms=1500) == [ONE]


def test_a_broker_that_keeps_one_of_its_connections_to_a_standby_is_not_disconnected() -> None:
    """It closes the other itself, when it looks for the active controller elsewhere."""
    presence = BrokerPresence()
    presence.heartbeat_received(ZERO, "standby connection")
    presence.heartbeat_received(ZERO, "connection of its life cycle")
    presence.connection_lost("connection of its life cycle")
    assert presence.disconnected == set()
    presence.connection_lost("standby connection")
    assert presence.disconnected == {ZERO}
