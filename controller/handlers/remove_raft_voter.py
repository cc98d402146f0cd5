"""RemoveRaftVoter (key 81), v0: remove a controller from the voters of the quorum; it remains an observer (KIP-853).

The active controller may be removed: it resigns once the change is committed. Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import quorum_membership
from raylog.controller.handlers.add_raft_voter import check_cluster_id
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        check_cluster_id(controller, request.cluster_id)
        outcome = quorum_membership.remove_voter(
            controller.image, controller.quorum, BrokerId(request.voter_id), request.voter_directory_id
        )
        controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
    return RemoveRaftVoterResponse()
