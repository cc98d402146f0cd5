"""When committed offsets expire: offsets.retention.minutes after their last use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raylog.core.ids import NO_TIMESTAMP_MS, TopicPartition
from raylog.groupcoord.classic.group import ClassicGroup, GroupState
from raylog.groupcoord.classic.subscription import CONSUMER
from raylog.groupcoord.records import OffsetCommitted

UNKNOWN_TIMESTAMP_MS = -1


def expired(
    group: ClassicGroup | None,
    committed: Mapping[TopicPartition, OffsetCommitted],
    *,
    retention_ms: int,
    now_ms: int,
) -> list[TopicPartition]:
    """The partitions whose offsets have expired; `now_ms` is wall clock time.

    The retention begins, for a group that never had members, with each commit; for an empty group, when its last member
    left; for a stable consumer group, with each commit, in topics without a subscription. Offsets of other groups do
    not expire. An offset that was committed with a retention of its own has that. Source: KIP-211, KIP-496.
    """
    last_of_use: dict[TopicPartition, int] = {tp: each.commit_timestamp_ms for tp, each in committed.items()}
    if group is not None and group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            if group.state_since_ms != UNKNOWN_TIMESTAMP_MS:
                last_of_use = dict.fromkeys(committed, group.state_since_ms)
        elif group.state is GroupState.STABLE and group.protocol_type == CONSUMER and group.subscribed is not None:
            last_of_use = {tp: ms for tp, ms in last_of_use.items() if tp.topic not in group.subscribed}
        else:
            return []
    return [
        tp
        for tp, ms in last_of_use.items()
        if _has_expired(committed[tp], ms, retention_ms=retention_ms, now_ms=now_ms)
    ]


def expired_of_managed_group(
    subscribed: Iterable[str],
    committed: Mapping[TopicPartition, OffsetCommitted],
    *,
    retention_ms: int,
    now_ms: int,
) -> list[TopicPartition]:
    """The same for a group whose coordinator assigns: the retention begins with each commit, without a subscription."""
    if not committed:
        return []
    used = set(subscribed)
    return [
        tp
        for tp, each in committed.items()
        if tp.topic not in used
        and _has_expired(each, each.commit_timestamp_ms, retention_ms=retention_ms, now_ms=now_ms)
    ]


def _has_expired(committed: OffsetCommitted, since_ms: int, *, retention_ms: int, now_ms: int) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP_MS:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms
