"""The part of IncrementalAlterConfigs (key 44) that sets the levels of loggers (KIP-412): carried out by this broker.

Only SET and DELETE, of loggers of the broker that is asked, as in Kafka. A request for loggers must not contain other
resources, which the controller decides. Requires ALTER_CONFIGS on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.broker.loggers import check_levels, set_levels
from raylog.core.config import shown
from raylog.core.errors import ErrorCode, KafkaError
from raylog.metadata.config_resources import BROKER_LOGGER
from raylog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

SET: Final = 0
DELETE: Final = 1


def concerns_loggers(request: IncrementalAlterConfigsRequest) -> bool:
    return any(resource.resource_type == BROKER_LOGGER for resource in request.resources)


def alter_loggers(
    broker: BrokerServices, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    others = any(resource.resource_type != BROKER_LOGGER for resource in request.resources)
    responses = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            if others:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Loggers must be changed by a request of their own.")
            _alter(broker, exchange, resource, validate_only=request.validate_only)
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


def _alter(broker: BrokerServices, exchange: Exchange, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    broker.authorization.check(exchange, Operation.ALTER_CONFIGS, CLUSTER)
    check_broker_name(broker, resource.resource_name)
    if any(each.config_operation not in (SET, DELETE) for each in resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The levels of loggers can only be set and deleted.")
    changes = {each.name: None if each.config_operation == DELETE else each.value or "" for each in resource.configs}
    if len(changes) < len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A logger is changed twice.")
    check_levels(changes)
    if not validate_only:
        set_levels(changes)


def check_broker_name(broker: BrokerServices, name: str) -> None:
    """Raises KafkaError(INVALID_REQUEST) if this is not the name of the broker that is asked."""
    if name != str(broker.identity.node_id):
        message = f"Loggers of broker {shown(name)} must be requested from that broker; this is broker "
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{message}{broker.identity.node_id}.")
