"""Committed offsets expire after offsets.retention.minutes, as in Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.core.ids import TopicPartition
from raylog.groupcoord.classic.group import ClassicGroup, GroupState
from raylog.groupcoord.expiration import expired, expired_of_managed_group
from raylog.groupcoord.records import OffsetCommitted

RETENTION_MS = 1000
READ, UNREAD = TopicPartition("read", 0), TopicPartition("unread", 0)
COMMITTED = {tp: OffsetCommitted("g", tp.topic, tp.partition, 1, -1, "", 500) for tp in (READ, UNREAD)}


def group(state: GroupState, *, protocol_type: str | None = "consumer", since_ms: int = 2000) -> ClassicGroup:
    return ClassicGroup(
        "g", state, protocol_type=protocol_type, state_since_ms=since_ms, subscribed=frozenset({"read"})
    )


@pytest.mark.parametrize(
    ("kind", "first_ms", "gone"),
    [
        (None, 1500, [READ, UNREAD]),
        (group(GroupState.EMPTY, protocol_type=None), 1500, [READ, UNREAD]),
        (group(GroupState.EMPTY), 3000, [READ, UNREAD]),
        (group(GroupState.EMPTY, since_ms=-1), 1500, [READ, UNREAD]),
        (group(GroupState.STABLE), 1500, [UNREAD]),
    ],
)
def test_offsets_expire_after_the_retention_time(
    kind: ClassicGroup | None, first_ms: int, gone: list[TopicPartition]
) -> None:
    assert expired(kind, COMMITTED, retention_ms=RETENTION_MS, now_ms=first_ms - 1) == []
    assert expired(kind, COMMITTED, retention_ms=RETENTION_MS, now_ms=first_ms) == gone


@pytest.mark.parametrize("kind", [None, group(GroupState.EMPTY)])
def test_an_offset_may_have_a_retention_of_its_own(kind: ClassicGroup | None) -> None:
    own = {READ: replace(COMMITTED[READ], expire_timestamp_ms=700), UNREAD: COMMITTED[UNREAD]}
    assert expired(kind, own, retention_ms=RETENTION_MS, now_ms=699) == []
    assert expired(kind, own, retention_ms=RETENTION_MS, now_ms=700) == [READ]
    later = {READ: replace(COMMITTED[READ], expire_timestamp_ms=90_000)}
    assert expired(kind, later, retention_ms=RETENTION_MS, now_ms=89_999) == []
    unread = {UNREAD: replace(COMMITTED[UNREAD], expire_timestamp_ms=700)}
    assert expired_of_managed_group(["read"], unread, retention_ms=RETENTION_MS, now_ms=700) == [UNREAD]
    assert expired_of_managed_group(["unread"], unread, retention_ms=RETENTION_MS, now_ms=1 << 50) == []


def unknown_subscriptions() -> ClassicGroup:
    stable = group(GroupState.STABLE)
    stable.subscribed = None
    return stable


@pytest.mark.parametrize(
    "kind",
    [
        group(GroupState.PREPARING_REBALANCE),
        group(GroupState.COMPLETING_REBALANCE),
        group(GroupState.STABLE, protocol_type="connect"),
        unknown_subscriptions(),
    ],
)
def test_an_active_group_keeps_its_offsets(kind: ClassicGroup) -> None:
    assert expired(kind, COMMITTED, retention_ms=RETENTION_MS, now_ms=1 << 50) == []
