"""The part of IncrementalAlterConfigs (key 44) that sets the levels of loggers (KIP-412): carried out by this node.

Only SET and DELETE, of loggers of the broker or controller that is asked, as in Kafka. A request for loggers must not
contain other resources, which the active controller decides. Requires ALTER_CONFIGS on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.core.config import shown
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.loggers import check_levels, set_levels
from raylog.metadata.config_resources import BROKER_LOGGER
from raylog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.metadata.services import ImageServices
    from raylog.transport.exchange import Exchange

SET: Final = 0
DELETE: Final = 1


def concerns_loggers(request: IncrementalAlterConfigsRequest) -> bool:
    return any(resource.resource_type == BROKER_LOGGER for resource in request.resources)


def alter_loggers(
    node: ImageServices, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    others = any(resource.resource_type != BROKER_LOGGER for resource in request.resources)
    responses = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            if others:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Loggers must be changed by a request of their own.")
            _alter(node, exchange, resource, validate_only=request.validate_only)
        except KafkaError as error:
            code, message = error.code, error.message
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def _alter(node: ImageServices, exchange: Exchange, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    node.authorization.check(exchange, Operation.ALTER_CONFIGS, CLUSTER)
    check_node_name(node, resource.resource_name)
    if any(each.config_operation not in (SET, DELETE) for each in resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The levels of loggers can only be set and deleted.")
    changes = {each.name: None if each.config_operation == DELETE else each.value or "" for each in resource.configs}
    if len(changes) < len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A logger is changed twice.")
    check_levels(changes)
    if not validate_only:
        set_levels(changes)


def check_node_name(node: ImageServices, name: str) -> None:
    """Raises KafkaError(INVALID_REQUEST) if this is not the name of the node that is asked."""
    if name != str(node.identity.node_id):
        message = f"Loggers of node {shown(name)} must be requested from that node; this is node "
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{message}{node.identity.node_id}.")
