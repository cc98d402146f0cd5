"""FetchSnapshot (key 59), v0-1, internal: a part of a metadata snapshot (KIP-630).

Used by nodes that need records from before the log start offset; Fetch returns the snapshot's id. v1 directory ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller.quorum.events import VoterFetched
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset
from raylog.metadata.snapshot import SnapshotId
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.protocol.messages import fetch_snapshot
from raylog.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    RequestPartitionSnapshot,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
)

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

PIECE_BYTES_MAX = 8 << 20


def handle(controller: ControllerServices, exchange: Exchange, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    if request.cluster_id not in (None, controller.identity.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    if len(wanted) != 1 or (wanted[0][0], wanted[0][1].partition) != METADATA_PARTITION:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    _note_contact(controller, exchange, BrokerId(request.replica_id), wanted[0][1])
    answer = _piece(controller, wanted[0][1], max_bytes=min(request.max_bytes, PIECE_BYTES_MAX))
    return FetchSnapshotResponse(topics=(ResponseTopicSnapshot(name=METADATA_PARTITION.topic, partitions=(answer,)),))


def _note_contact(
    controller: ControllerServices, exchange: Exchange, voter: BrokerId, wanted: RequestPartitionSnapshot
) -> None:
    """Count the request as a fetch: a voter sends no others while it fetches a large snapshot.

    A request of another epoch does not count, as in Fetch: it was sent before the voter followed this leader.
    """
    quorum = controller.quorum
    progress = quorum.progress.get(voter)
    if progress is not None and wanted.current_leader_epoch == quorum.leader_epoch:
        event = VoterFetched(voter, progress.end_offset, wanted.replica_directory_id)
        controller.voter.step(event, exchange.now)


def _piece(
    controller: ControllerServices, wanted: RequestPartitionSnapshot, *, max_bytes: int
) -> ResponsePartitionSnapshot:
    quorum = controller.quorum
    snapshot = SnapshotId(Offset(wanted.snapshot_id.end_offset), LeaderEpoch(wanted.snapshot_id.epoch))
    current = LeaderIdAndEpoch(leader_id=quorum.leader_id, leader_epoch=quorum.leader_epoch)
    if not quorum.is_leader:
        return ResponsePartitionSnapshot(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=current)
    try:
        piece, size = controller.metadata_log.read_snapshot(snapshot, position=wanted.position, max_bytes=max_bytes)
    except KafkaError as error:
        return ResponsePartitionSnapshot(error_code=error.code, current_leader=current)
    return ResponsePartitionSnapshot(
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        size=size,
        position=wanted.position,
        unaligned_records=piece,
        current_leader=current,
    )
