"""The FetchSnapshot request by which a voter or a broker reads a snapshot of the metadata (KIP-630)."""

from __future__ import annotations

from uuid import UUID

from raylog.core.ids import NO_DIRECTORY_ID, BrokerId
from raylog.metadata.snapshot import SnapshotId
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.protocol.messages import fetch_snapshot
from raylog.protocol.messages.fetch_snapshot import FetchSnapshotRequest

PIECE_BYTES_MAX = 128 << 10
"""A piece is decoded when it arrives: about 1,500 records, some 20 ms. Kafka asks for 8 MiB."""


def snapshot_request(
    cluster_id: str,
    replica_id: BrokerId,
    snapshot: SnapshotId,
    position: int,
    *,
    leader_epoch: int = -1,
    directory_id: UUID = NO_DIRECTORY_ID,
) -> FetchSnapshotRequest:
    """The piece of the snapshot from `position` on. A controller gives its leader epoch and its log directory's id."""
    wanted = fetch_snapshot.RequestPartitionSnapshot(
        partition=METADATA_PARTITION.partition,
        current_leader_epoch=leader_epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=directory_id,
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_PARTITION.topic, partitions=(wanted,))
    return FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=replica_id, max_bytes=PIECE_BYTES_MAX, topics=(topic,)
    )
