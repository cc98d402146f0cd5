"""The current leader, as Produce and Fetch responses return it with NOT_LEADER_OR_FOLLOWER (KIP-951)."""

from __future__ import annotations

from raylog.protocol.schema import int32, message, string


@message
class LeaderIdAndEpoch:
    """The leader and leader epoch that the broker knows; -1 for unknown."""

    leader_id: int = int32(-1)
    leader_epoch: int = int32(-1)


@message
class NodeEndpoint:
    """The endpoint of a leader in the same response."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(None, null_since=0)
