"""DescribeCluster (key 60), v0-2: the cluster's id, controller and brokers. v1 endpoint type; v2 fenced brokers.

Coordinators that are nodes of their own are in Metadata only, where clients find them. Requires no ACL: a client that
has reached one broker may know the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.endpoint_type import EndpointType, check_endpoint_type
from raylog.core.errors import KafkaError
from raylog.metadata.node_roles import is_coordinator
from raylog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from raylog.security.authorization import NOT_ASKED

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: DescribeClusterRequest) -> DescribeClusterResponse:
    try:
        check_endpoint_type(request.endpoint_type, EndpointType.BROKER, api_version=exchange.api_version)
    except KafkaError as error:
        return DescribeClusterResponse(error_code=error.code, error_message=error.message)
    return DescribeClusterResponse(
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.controller_on(exchange.connection.listener.name),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=broker_id, host=host, port=port, rack=rack, is_fenced=not broker.image.is_alive(broker_id)
            )
            for broker_id, host, port, rack in broker.alive_on(
                exchange.connection.listener.name, also_fenced=request.include_fenced_brokers
            )
            if not is_coordinator(broker_id)
        ),
        cluster_authorized_operations=(
            broker.authorization.cluster_operations(exchange)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )
