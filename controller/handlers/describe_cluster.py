"""DescribeCluster (key 60), v0-2, on a controller: the active controller and the others (KIP-919).

v1 endpoint type, which must be that of controllers; v2 fenced brokers, of which there are none here. Requires ALTER on
the cluster, as in Kafka. A controller whose address is not known is left out; then there may be no active one either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.endpoint_type import EndpointType, check_endpoint_type
from raylog.core.errors import KafkaError
from raylog.core.ids import NO_BROKER_ID
from raylog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from raylog.security.acl import CLUSTER, Operation
from raylog.security.authorization import NOT_ASKED

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        check_endpoint_type(request.endpoint_type, EndpointType.CONTROLLER, api_version=exchange.api_version)
    except KafkaError as error:
        return DescribeClusterResponse(error_code=error.code, error_message=error.message)
    listener = exchange.connection.listener.name
    found = tuple(
        DescribeClusterBroker(broker_id=each.voter_id, host=host, port=port)
        for each in controller.voters_with_listeners()
        for name, host, port in each.endpoints
        if name == listener
    )
    leader_id = controller.quorum.leader_id
    return DescribeClusterResponse(
        endpoint_type=EndpointType.CONTROLLER,
        cluster_id=controller.identity.cluster_id,
        controller_id=leader_id if any(each.broker_id == leader_id for each in found) else NO_BROKER_ID,
        brokers=found,
        cluster_authorized_operations=(
            controller.authorization.cluster_operations(exchange)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )
