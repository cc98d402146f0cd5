"""BeginQuorumEpoch (key 53), v0-1, internal: another voter announces that it leads the metadata log (KIP-595).

v1 directory ids and endpoints, which are ignored: controllers find each other by their names. The leader may be a voter
that this controller does not know yet, but its id must be one that the election state can hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller.quorum.events import LeaderSeen
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_DIRECTORY_ID, BrokerId, LeaderEpoch
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse:
    if request.cluster_id != controller.identity.cluster_id:
        return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    begun = [(topic.topic_name, each) for topic in request.topics for each in topic.partitions]
    if len(begun) != 1 or (begun[0][0], begun[0][1].partition_index) != METADATA_PARTITION:
        return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    quorum = controller.quorum
    announced = begun[0][1]
    code = ErrorCode.NONE
    is_asked = announced.voter_directory_id in (NO_DIRECTORY_ID, quorum.directory_id)
    if not is_asked or announced.leader_id == quorum.node_id:
        code = ErrorCode.INVALID_VOTER_KEY
    elif announced.leader_epoch < quorum.leader_epoch:
        code = ErrorCode.FENCED_LEADER_EPOCH
    elif announced.leader_id < 0:
        code = ErrorCode.INVALID_REQUEST
    else:
        controller.voter.step(
            LeaderSeen(BrokerId(announced.leader_id), LeaderEpoch(announced.leader_epoch)), exchange.now
        )
    answer = ResponsePartitionData(error_code=code, leader_id=quorum.leader_id, leader_epoch=quorum.leader_epoch)
    return BeginQuorumEpochResponse(
        topics=(ResponseTopicData(topic_name=METADATA_PARTITION.topic, partitions=(answer,)),)
    )
