"""IncrementalAlterConfigs (key 44), v0-1: set, delete, append to or subtract from single configurations (KIP-339).

v1 flexible. Topics, groups and brokers; an empty broker name means all brokers (KIP-226). Requires ALTER_CONFIGS on the
topic or the group, or on the cluster for brokers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raylog.controller.configs import ConfigChange, ConfigOperation
from raylog.controller.handlers.alter_configs import alter, check_once
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    responses = []
    names = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            check_once(names[kind, name])
            changes = [_change(entry) for entry in resource.configs]
            alter(controller, exchange, kind, name, changes, replace=False, validate_only=request.validate_only)
            responses.append(AlterConfigsResourceResponse(resource_type=kind, resource_name=name))
        except KafkaError as error:
            responses.append(refused(kind, name, error))
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def refused(resource_type: int, resource_name: str, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code, error_message=error.message, resource_type=resource_type, resource_name=resource_name
    )


def _change(entry: AlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(entry.config_operation)
    except ValueError:
        message = f"{entry.name}: operation {entry.config_operation} is unknown."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message) from None
    return ConfigChange(entry.name, operation, entry.value)
