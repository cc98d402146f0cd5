"""ListConfigResources (key 74), v0-1: the resources of the types that can have a configuration.

v0 was ListClientMetricsResources and lists these only (KIP-1000); v1 lists the requested types, or all types if none
is requested (KIP-1142). Requires DESCRIBE_CONFIGS on the cluster.

Topics, brokers and their loggers, and the groups and client metrics for which something is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from raylog.core.errors import ErrorCode
from raylog.metadata.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from raylog.metadata.node_roles import is_coordinator
from raylog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

ALL_KINDS: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


def handle(
    broker: BrokerServices, exchange: Exchange, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if not broker.authorization.may(exchange, Operation.DESCRIBE_CONFIGS, CLUSTER):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = frozenset(request.resource_types) or ALL_KINDS
    if exchange.api_version == 0:
        wanted = frozenset({CLIENT_METRICS})
    if not wanted <= ALL_KINDS:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(config_resources=tuple(_resources(broker, exchange, wanted)))


def _resources(broker: BrokerServices, exchange: Exchange, wanted: frozenset[int]) -> Iterator[ConfigResource]:
    for broker_id, *_ in broker.alive_on(exchange.connection.listener.name):
        for kind in (BROKER, BROKER_LOGGER):
            if kind in wanted and not is_coordinator(broker_id):
                yield ConfigResource(resource_name=str(broker_id), resource_type=kind)
    if TOPIC in wanted:
        for topic in broker.image.topics:
            yield ConfigResource(resource_name=topic, resource_type=TOPIC)
    if GROUP in wanted:
        for group_id in broker.image.group_configs:
            yield ConfigResource(resource_name=group_id, resource_type=GROUP)
    if CLIENT_METRICS in wanted:
        for name in broker.image.client_metrics:
            yield ConfigResource(resource_name=name, resource_type=CLIENT_METRICS)
