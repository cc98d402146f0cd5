"""AddRaftVoter (key 80), v0-1: add a controller, which must be an observer, to the voters of the quorum (KIP-853).

v1 whether to answer before the change is committed, which is ignored: every response of the controller waits for it.
Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import quorum_membership
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.metadata.voters import QuorumVoter
from raylog.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(controller: ControllerServices, exchange: Exchange, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    voter_id = BrokerId(request.voter_id)
    endpoints = tuple((each.name, each.host, each.port) for each in request.listeners)
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        check_cluster_id(controller, request.cluster_id)
        outcome = quorum_membership.add_voter(
            controller.image,
            controller.quorum,
            QuorumVoter(voter_id, request.voter_directory_id, endpoints),
            observers=controller.observers,
            levels=controller.voter.levels.of(voter_id),
            lag_ms_max=controller.settings.quorum.fetch_timeout_ms,
            now=exchange.now,
        )
        controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    controller.observers.forget(voter_id)
    return AddRaftVoterResponse()


def check_cluster_id(controller: ControllerServices, cluster_id: str | None) -> None:
    """Raises KafkaError(INCONSISTENT_CLUSTER_ID) for another cluster; None stands for any."""
    if cluster_id not in (None, controller.identity.cluster_id):
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID)
