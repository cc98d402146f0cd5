"""Which controllers a broker says that it is there, with links that carry nothing."""

from __future__ import annotations

from typing import Any, cast

from raylog.broker.active_controller import ActiveController
from raylog.controller.broker_sessions import BrokerPresence
from raylog.controller.voters import voter_ids, voter_name, voter_named
from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink

NOW = Now(1, 1)


class Link:
    ready = True

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def redirect(self, peer: str) -> None:
        self.peer = peer


class AnyNode:
    def new_link(self, peer: str, **_: Any) -> Link:
        return Link(peer)


def test_who_was_taken_for_the_active_one_by_mistake_knows_that_the_broker_is_there_all_the_same() -> None:
    voters = voter_ids(3)
    standing_by = {voter: BrokerPresence() for voter in voters}
    active = ActiveController(cast("Node", AnyNode()), voters)
    link = active.new_link(on_ready=lambda now: None)

    def present(link: PeerLink, now: Now) -> None:
        voter = voter_named(link.peer)
        assert voter is not None
        standing_by[voter].heard(BrokerId(0), link)

    active.on_present = present
    active.found(NOW)
    active.cannot_be_reached()
    mistaken = voters[1]
    assert link.peer == voter_name(mistaken)
    standing_by[mistaken].heard(BrokerId(0), link)  # a heartbeat, with which it asks
    active.is_another(voters[2])
    standing_by[mistaken].connection_lost(link)
    assert standing_by[mistaken].gone == {BrokerId(0)}
    active.found(NOW)
    assert not standing_by[mistaken].gone
