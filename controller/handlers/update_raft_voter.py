"""UpdateRaftVoter (key 82), v0, internal: a voter reports its listeners, which clients get by DescribeQuorum (KIP-853).

While `kraft.version` is 0 the leader only remembers them. The answer says where the leader listens for clients. A
controller that does not lead returns NOT_LEADER_OR_FOLLOWER and the leader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from raylog.controller import quorum_membership
from raylog.controller.handlers.add_raft_voter import check_cluster_id
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.metadata.control_records import KRAFT_VERSIONS
from raylog.metadata.features import KRAFT_FEATURE
from raylog.metadata.voters import QuorumVoter
from raylog.protocol.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    quorum = controller.quorum
    leader = CurrentLeader(leader_id=quorum.leader_id, leader_epoch=quorum.leader_epoch)
    endpoints = tuple((each.name, each.host, each.port) for each in request.listeners)
    supported = request.k_raft_version_feature
    try:
        check_cluster_id(controller, request.cluster_id)
        if not quorum.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if 0 <= request.current_leader_epoch != quorum.leader_epoch:
            older = request.current_leader_epoch < quorum.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not supported.min_supported_version <= KRAFT_VERSIONS[-1] <= supported.max_supported_version:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        voter = QuorumVoter(BrokerId(request.voter_id), request.voter_directory_id, endpoints)
        if controller.image.feature_level(KRAFT_FEATURE) == 0:
            quorum_membership.check_report(quorum, voter)
            controller.listener_reports.reported(voter)
        else:
            controller.decide(quorum_membership.update_voter(controller.image, quorum, voter), exchange.now)
    except KafkaError as error:
        return UpdateRaftVoterResponse(error_code=error.code, current_leader=leader)
    for _, host, port in controller.listener_reports.of_clients(controller.as_voter)[:1]:
        leader = replace(leader, host=host, port=port)
    return UpdateRaftVoterResponse(current_leader=leader)
