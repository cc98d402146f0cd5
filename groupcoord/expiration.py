"""When a group's positions are forgotten: so long after it was last of use to anybody (offsets.retention.minutes)."""

from __future__ import annotations

from collections.abc import Mapping

from raylog.core.ids import TopicPartition
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
    """The partitions whose positions are to go; `now_ms` is the wall clock's.

    A group that never had members, or only ever committed: so long after each commit. An empty one: so long after its
    last member went. A stable consumer group: so long after each commit, in topics that nobody is subscribed to. Any
    other keeps what it has. Source: KIP-211, KIP-496.
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
    return [tp for tp, ms in last_of_use.items() if now_ms - ms >= retention_ms]
