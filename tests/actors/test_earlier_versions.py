"""Statuses of nodes of another version are read: what these do not know has its default."""

from __future__ import annotations

from raylog.actors.broker import BrokerStatus
from raylog.actors.controller import ControllerStatus


def read(state: list[object]) -> ControllerStatus:
    status = ControllerStatus.__new__(ControllerStatus)
    status.__setstate__(state)  # as pickle does
    return status


def test_what_the_sender_does_not_know_has_its_default() -> None:
    assert read([1, 20, True]) == ControllerStatus(1, 20, active=True)
    assert read([1, 20, True, "h:1"]) == ControllerStatus(1, 20, active=True, metrics="h:1")


def test_what_only_the_sender_knows_is_ignored() -> None:
    assert read([1, 20, True, "h:1", "h:2", "later"]) == ControllerStatus(1, 20, True, "h:1", "h:2")


def test_defaults_that_can_be_changed_are_not_shared() -> None:
    one, other = (BrokerStatus.__new__(BrokerStatus) for _ in range(2))
    for status in (one, other):
        status.__setstate__([0, "h", 9092, 1, "node", "running", "id", {}])
    assert (one.niceness, one.throttled, one.metrics) == (0, [], "")
    assert one.throttled is not other.throttled
