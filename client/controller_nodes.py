"""How an admin client works with controllers and not with brokers (bootstrap.controllers, KIP-919). Pure.

They serve no Metadata. DescribeCluster of Kafka 3.7 and later says where they are and which one is active; that one
serves what a client may ask of controllers. Topics have no leaders there, and groups no coordinators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from raylog.core.endpoint_type import EndpointType
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

VERSION_MIN: Final = 1
"""Of DescribeCluster, with an endpoint type."""
NOT_SERVED: Final = "controllers do not serve this: connect to brokers, by bootstrap.servers"


def controllers_request(version_for: VersionFor) -> DescribeClusterRequest:
    """Raises KafkaError for a peer that is too old."""
    request = DescribeClusterRequest(endpoint_type=EndpointType.CONTROLLER)
    if version_for(request.api.key) < VERSION_MIN:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the node is older than Kafka 3.7, and serves no such clients")
    return request


def of_controllers(request: Message) -> Message:
    """What an operation asks of the cluster, asked of its controllers."""
    if isinstance(request, DescribeClusterRequest):
        return replace(request, endpoint_type=EndpointType.CONTROLLER)
    return request


def as_metadata(response: Any) -> MetadataResponse:
    """Of a response to `controllers_request`: the controllers as nodes. Raises KafkaError."""
    if response.error_code:
        text = response.error_message or response.error_code.sentence
        raise KafkaError(response.error_code, f"bootstrap.controllers: {text}")
    nodes = tuple(
        MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port) for each in response.brokers
    )
    return MetadataResponse(brokers=nodes, cluster_id=response.cluster_id, controller_id=response.controller_id)
