"""DescribeCluster (key 60), v0-2: the cluster's id, controller and brokers. v1 endpoint type; v2 fenced brokers.

Coordinators that are nodes of their own are in Metadata only, where clients find them. Requires no ACL: a client that
has reached one broker may know the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.metadata import NOT_ASKED, cluster_operations
from raylog.core.errors import ErrorCode
from raylog.metadata.node_roles import is_coordinator
from raylog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

BROKERS = 1


def handle(broker: BrokerServices, exchange: Exchange, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS and exchange.api_version >= 1:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is a broker endpoint; only endpoint type 1 (brokers) is supported.",
        )
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
            cluster_operations(broker, exchange) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
