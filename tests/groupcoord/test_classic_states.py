"""Every request in every state of a group gets Kafka's response."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.classic.group import GroupState, Joined, Synced
from tests.groupcoord.coordinator import RANGE, REBALANCE_MS, ROUND_ROBIN, SESSION_MS, Coordinator, Waiting

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
WAITS = None

Prepared = tuple[Coordinator, str, int]
"""A coordinator, a member's id that the group knows (of a follower, where it has two members), its generation."""


def none_at_all() -> Prepared:
    return Coordinator(), "nobody", 1


def empty() -> Prepared:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    assert coordinator.leave(member) == NONE
    assert coordinator.state is GroupState.EMPTY
    return coordinator, member, coordinator.group.generation_id


def preparing() -> Prepared:
    coordinator = Coordinator()
    _, follower = coordinator.stable()
    coordinator.join()
    assert coordinator.state is GroupState.PREPARING_REBALANCE
    return coordinator, follower, coordinator.group.generation_id


def completing() -> Prepared:
    coordinator = Coordinator()
    leader, follower = coordinator.stable()
    assert not coordinator.join(leader).answered
    assert coordinator.join(follower).code == NONE
    assert coordinator.state is GroupState.COMPLETING_REBALANCE
    return coordinator, follower, coordinator.group.generation_id


def stable() -> Prepared:
    coordinator = Coordinator()
    _, follower = coordinator.stable()
    return coordinator, follower, coordinator.group.generation_id


STATES: tuple[Callable[[], Prepared], ...] = (none_at_all, empty, preparing, completing, stable)


def code_of(waiting: Waiting[Joined] | Waiting[Synced]) -> ErrorCode | None:
    return waiting.code if waiting.answered else WAITS


def delete(coordinator: Coordinator) -> ErrorCode:
    try:
        coordinator.classic.check_delete("g")
    except KafkaError as error:
        return error.code
    return NONE


REQUESTS: dict[str, tuple[Callable[[Coordinator, str, int], ErrorCode | None], tuple[ErrorCode | None, ...]]] = {
    # what is asked                                                  none at all, empty, preparing, completing, stable
    "join as somebody new": (
        lambda c, m, g: code_of(c.join()),
        (NONE, NONE, WAITS, WAITS, WAITS),
    ),
    "join with another type": (
        lambda c, m, g: code_of(c.join(protocol_type="connect")),
        (NONE, NONE, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "join without protocols": (
        lambda c, m, g: code_of(c.join(protocols=())),
        (INCONSISTENT,) * 5,
    ),
    "join without a type": (
        lambda c, m, g: code_of(c.join(protocol_type="")),
        (INCONSISTENT,) * 5,
    ),
    "join with a protocol that no other member has": (
        lambda c, m, g: code_of(c.join(protocols=[ROUND_ROBIN])),
        (NONE, NONE, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "join by an unknown id": (
        lambda c, m, g: code_of(c.join("somebody")),
        (UNKNOWN,) * 5,
    ),
    "join again, unchanged": (
        lambda c, m, g: code_of(c.join(m)),
        (UNKNOWN, UNKNOWN, WAITS, NONE, NONE),
    ),
    "join again with other metadata": (
        lambda c, m, g: code_of(c.join(m, protocols=[(RANGE[0], b"other")])),
        (UNKNOWN, UNKNOWN, WAITS, WAITS, WAITS),
    ),
    "join by an id and an unknown instance": (
        lambda c, m, g: code_of(c.join(m, instance="i")),
        (UNKNOWN,) * 5,
    ),
    "sync": (
        lambda c, m, g: code_of(c.sync(m, g)),
        (UNKNOWN, UNKNOWN, REBALANCE, WAITS, NONE),
    ),
    "sync in an older generation": (
        lambda c, m, g: code_of(c.sync(m, g - 1)),
        (UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "sync in a generation to come": (
        lambda c, m, g: code_of(c.sync(m, g + 1)),
        (UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "sync by an unknown id": (
        lambda c, m, g: code_of(c.sync("somebody", g)),
        (UNKNOWN,) * 5,
    ),
    "sync with another type": (
        lambda c, m, g: code_of(c.sync(m, g, protocol_type="connect")),
        (UNKNOWN, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "sync with another protocol": (
        lambda c, m, g: code_of(c.sync(m, g, protocol_name="roundrobin")),
        (UNKNOWN, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    ),
    "sync as older clients do": (
        lambda c, m, g: code_of(c.sync(m, g, protocol_type=None, protocol_name=None)),
        (UNKNOWN, UNKNOWN, REBALANCE, WAITS, NONE),
    ),
    "heartbeat": (
        lambda c, m, g: c.heartbeat(m, g),
        (UNKNOWN, UNKNOWN, REBALANCE, NONE, NONE),
    ),
    "heartbeat in another generation": (
        lambda c, m, g: c.heartbeat(m, g - 1),
        (UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "heartbeat of somebody unknown": (
        lambda c, m, g: c.heartbeat("somebody", g),
        (UNKNOWN,) * 5,
    ),
    "heartbeat of an unknown instance": (
        lambda c, m, g: c.heartbeat(m, g, "i"),
        (UNKNOWN,) * 5,
    ),
    "leave": (
        lambda c, m, g: c.leave(m),
        (UNKNOWN, UNKNOWN, NONE, NONE, NONE),
    ),
    "leave as somebody unknown": (
        lambda c, m, g: c.leave("somebody"),
        (UNKNOWN,) * 5,
    ),
    "leave as an unknown instance": (
        lambda c, m, g: c.leave("", "i"),
        (UNKNOWN,) * 5,
    ),
    "commit as a member": (
        lambda c, m, g: c.check_commit(g, m),
        (UNKNOWN, UNKNOWN, NONE, REBALANCE, NONE),
    ),
    "commit in an older generation": (
        lambda c, m, g: c.check_commit(g - 1, m),
        (UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "commit as somebody unknown": (
        lambda c, m, g: c.check_commit(g, "somebody"),
        (UNKNOWN,) * 5,
    ),
    "commit without a generation": (
        lambda c, m, g: c.check_commit(-1, ""),
        (NONE, NONE, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "commit as a member without a generation": (
        lambda c, m, g: c.check_commit(-1, m),
        (NONE, NONE, ILLEGAL, ILLEGAL, ILLEGAL),
    ),
    "commit as an unknown instance": (
        lambda c, m, g: c.check_commit(g, m, "i"),
        (UNKNOWN,) * 5,
    ),
    "delete the group": (
        lambda c, m, g: delete(c),
        (NONE, NONE, NON_EMPTY, NON_EMPTY, NON_EMPTY),
    ),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_response(request_name: str, state: Callable[[], Prepared]) -> None:
    ask, codes = REQUESTS[request_name]
    coordinator, member, generation_id = state()
    assert ask(coordinator, member, generation_id) == codes[STATES.index(state)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_an_error_changes_nothing(request_name: str, state: Callable[[], Prepared]) -> None:
    """The state of the group afterwards, without the session deadlines."""
    ask, codes = REQUESTS[request_name]
    if codes[STATES.index(state)] in (NONE, WAITS):
        return
    coordinator, member, generation_id = state()

    def look() -> object:
        group = coordinator.classic.groups.get("g")
        if group is None:
            return None
        members = [
            (each.member_id, each.protocols, each.join_reply, each.sync_reply, each.assignment)
            for each in group.members.values()
        ]
        return group.state, group.generation_id, group.leader, group.protocol_name, members, list(group.pending)

    before, log_before = look(), list(coordinator.log)
    ask(coordinator, member, generation_id)
    assert (look(), coordinator.log) == (before, log_before)


@pytest.mark.parametrize("state", STATES)
def test_a_group_without_members_that_rejoin_becomes_empty(state: Callable[[], Prepared]) -> None:
    """All members are silent: waiting ones get a response, and in the end the group is empty."""
    coordinator, _, _ = state()
    joining = coordinator.join()
    coordinator.pass_time(REBALANCE_MS + 10 * SESSION_MS)
    assert joining.answered
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.classic.next_deadline_ms() is None


@pytest.mark.parametrize("session_ms", [999, 1_800_001, 0, -1])
def test_session_timeouts_are_bounded(session_ms: int) -> None:
    coordinator = Coordinator()
    assert coordinator.join(session_ms=session_ms).code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert not coordinator.classic.groups
