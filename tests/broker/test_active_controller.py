"""A broker's links connect to the active controller; until it is known they try each voter in turn."""

from __future__ import annotations

from uuid import UUID

import pytest

from raylog.broker.active_controller import ActiveController
from raylog.config.network import ConnectionLimits
from raylog.core.clock import Now
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.metadata.voters import voter_ids, voter_name
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.peer_link import LinkState, PeerLink

LIMITS = ConnectionLimits(frame_bytes_max=1 << 20, connections_max=10, connections_per_host_max=10, idle_ms=-1)
FIRST, SECOND, THIRD = voter_ids(3)
NOW = Now(0, 0)


class Bench:
    """Two links, as a broker has them, and those to the controllers that stand by."""

    def __init__(self, count: int = 3) -> None:
        identity = NodeIdentity(BrokerId(0), "cluster", UUID(int=1), b"s" * 32)
        self.node = Node(identity, LIMITS, new_nonce=bytes, now=NOW)
        self.active = ActiveController(self.node, voter_ids(count))
        self.links = [self.active.new_link(on_ready=lambda _: None) for _ in range(2)]
        self.found: list[Now] = []
        self.active.on_found.append(self.found.append)

    @property
    def peers(self) -> set[str]:
        return {link.peer for link in self.links}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_voters_are_tried_in_turn(bench: Bench) -> None:
    tried: list[str] = []
    for _ in range(4):
        tried += bench.peers
        bench.active.try_next_voter()
    assert tried == [voter_name(each) for each in (FIRST, SECOND, THIRD, FIRST)]


def test_a_hint_to_the_active_controller_is_followed_and_without_one_the_next_voter_is_tried(bench: Bench) -> None:
    bench.active.follow_hint(THIRD)
    assert bench.peers == {voter_name(THIRD)}
    bench.active.follow_hint(NO_BROKER_ID)
    assert bench.peers == {voter_name(FIRST)}
    joined = BrokerId(1007)
    bench.active.follow_hint(joined)
    assert bench.peers == {voter_name(joined)}, "it may have become a voter since"
    bench.active.try_next_voter()
    assert bench.peers == {voter_name(FIRST)}


def test_other_voters_replace_those_that_it_was_started_with(bench: Bench) -> None:
    fourth = BrokerId(FIRST + 3)
    bench.active.replace_voters((SECOND, fourth))
    assert {link.peer for link in bench.node.links if link not in bench.links and not link.retired} == {
        voter_name(SECOND),
        voter_name(fourth),
    }
    tried: list[str] = []
    for _ in range(3):
        bench.active.try_next_voter()
        tried += bench.peers
    assert tried == [voter_name(each) for each in (SECOND, fourth, SECOND)]


def test_on_found_is_called_once(bench: Bench) -> None:
    bench.active.found(NOW)
    bench.active.found(NOW)
    assert len(bench.found) == 1
    bench.active.try_next_voter()
    bench.active.found(NOW)
    assert len(bench.found) == 2


def test_a_single_controller_is_kept() -> None:
    bench = Bench(1)
    bench.active.try_next_voter()
    bench.active.follow_hint(NO_BROKER_ID)
    assert bench.peers == {voter_name(FIRST)}
    assert len(bench.node.links) == 2


def test_standby_controllers_are_notified_and_the_active_one_is_not(bench: Bench) -> None:
    told: list[str] = []
    bench.active.notify_standby = lambda link, now: told.append(link.peer)
    present: list[PeerLink] = [link for link in bench.node.links if link not in bench.links]
    assert [link.peer for link in present] == [voter_name(each) for each in (FIRST, SECOND, THIRD)]
    for link in present:
        link.state = LinkState.READY
    bench.active.follow_hint(SECOND)
    bench.active.found(NOW)
    assert told == [voter_name(FIRST), voter_name(THIRD)]


def test_the_current_controller_is_notified_until_it_confirms_that_it_is_active(bench: Bench) -> None:
    """Otherwise it would know only the links to it, which are closed when the next voter is tried."""
    told: list[str] = []
    bench.active.notify_standby = lambda link, now: told.append(link.peer)
    [link] = [link for link in bench.node.links if link not in bench.links and link.peer == voter_name(SECOND)]
    link.state = LinkState.READY
    bench.active.follow_hint(SECOND)
    bench.active.notify_standbys(NOW)
    assert told == [voter_name(SECOND)]
    bench.active.found(NOW)
    bench.active.notify_standbys(NOW)
    assert told == [voter_name(SECOND)]
