"""Vote (key 52), v0-2, internal: a candidate requests this voter's vote (KIP-595). v1 directory ids; v2 pre-votes.

A granted vote is on disk before the response is sent. Pre-votes are those of KIP-996. The candidate may be a voter that
this controller does not know yet; but a request for another log directory than this one's is refused (KIP-853), and so
are negative numbers, which the election state cannot hold, and an older epoch, with Kafka's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller.quorum.events import LogEnd, VoteRequested
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, NO_DIRECTORY_ID, BrokerId, LeaderEpoch, Offset
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.protocol.messages.vote import (
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
    VoteRequest,
    VoteResponse,
)

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(controller: ControllerServices, exchange: Exchange, request: VoteRequest) -> VoteResponse:
    if request.cluster_id != controller.identity.cluster_id:
        return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted = [(topic.topic_name, each) for topic in request.topics for each in topic.partitions]
    if len(wanted) != 1 or (wanted[0][0], wanted[0][1].partition_index) != METADATA_PARTITION:
        return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = _answer(controller, exchange, request, wanted[0][1])
    return VoteResponse(topics=(ResponseTopicData(topic_name=METADATA_PARTITION.topic, partitions=(answer,)),))


def _answer(
    controller: ControllerServices, exchange: Exchange, request: VoteRequest, wanted: RequestPartitionData
) -> ResponsePartitionData:
    quorum = controller.quorum
    code, granted = _check(controller, request, wanted), False
    if code is ErrorCode.NONE:
        event = VoteRequested(
            BrokerId(wanted.replica_id),
            LeaderEpoch(wanted.replica_epoch),
            LogEnd(LeaderEpoch(wanted.last_offset_epoch), Offset(wanted.last_offset)),
            pre_vote=wanted.pre_vote,
            directory_id=wanted.replica_directory_id,
        )
        granted = controller.voter.step(event, exchange.now).granted
    return ResponsePartitionData(
        error_code=code, leader_id=quorum.leader_id, leader_epoch=quorum.leader_epoch, vote_granted=granted
    )


def _check(controller: ControllerServices, request: VoteRequest, wanted: RequestPartitionData) -> ErrorCode:
    """NONE if the quorum is to decide. A candidate's log ends in an earlier epoch than the one it asks votes for."""
    quorum = controller.quorum
    newest_epoch = wanted.replica_epoch if wanted.pre_vote else wanted.replica_epoch - 1
    if wanted.last_offset < 0 or not 0 <= wanted.last_offset_epoch <= newest_epoch:
        return ErrorCode.INVALID_REQUEST
    if wanted.replica_epoch < quorum.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if wanted.replica_id < 0:
        return ErrorCode.INVALID_REQUEST
    is_asked = request.voter_id in (NO_BROKER_ID, quorum.node_id)
    if not is_asked or wanted.voter_directory_id not in (NO_DIRECTORY_ID, controller.directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE
