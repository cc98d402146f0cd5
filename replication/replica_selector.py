"""Selects the replica a consumer should read from: Kafka's RackAwareReplicaSelector (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raylog.core.ids import BrokerId
from raylog.replication.in_sync_replicas import Follower


def closest_replica(
    rack_id: str, racks: Mapping[BrokerId, str | None], leader: BrokerId, holders: Iterable[tuple[BrokerId, Follower]]
) -> BrokerId:
    """The leader if it is on the consumer's rack or no holder is; else the most advanced holder on that rack.

    `racks` are those of the brokers that the consumer can reach; `holders` are the followers that have the requested
    offset.
    """
    if racks.get(leader) == rack_id:
        return leader
    near = (
        (follower.log_end_offset, follower.caught_up_ms, replica)
        for replica, follower in holders
        if racks.get(replica) == rack_id
    )
    _, _, closest = max(near, default=(0, 0, leader))
    return closest
