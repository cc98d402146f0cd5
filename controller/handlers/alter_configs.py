"""AlterConfigs (key 33), v0-2: set the whole dynamic configuration of topics, groups or brokers. v2 flexible.

Keys that the request does not contain return to their defaults; clients should use IncrementalAlterConfigs (KIP-339).
Requires ALTER_CONFIGS on the topic or the group, or on the cluster for brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from raylog.controller import configs
from raylog.controller.configs import ConfigChange, ConfigOperation
from raylog.core.config import shown
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.config_resources import BROKER, BROKER_ID, CLIENT_METRICS, GROUP, TOPIC, guarded
from raylog.metadata.effective_configs import ALL_BROKERS
from raylog.metadata.records import MetadataRecord
from raylog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from raylog.security.acl import Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(controller: ControllerServices, exchange: Exchange, request: AlterConfigsRequest) -> AlterConfigsResponse:
    responses = []
    names = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        changes = [ConfigChange(entry.name, ConfigOperation.SET, entry.value) for entry in resource.configs]
        try:
            check_once(names[kind, name])
            alter(controller, exchange, kind, name, changes, replace=True, validate_only=request.validate_only)
            responses.append(AlterConfigsResourceResponse(resource_type=kind, resource_name=name))
        except KafkaError as error:
            responses.append(refused(kind, name, error))
    return AlterConfigsResponse(responses=tuple(responses))


def check_once(times: int) -> None:
    """Check how often a request names a resource. Raises KafkaError: which of its changes would apply is not clear."""
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def refused(resource_type: int, resource_name: str, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code, error_message=error.message, resource_type=resource_type, resource_name=resource_name
    )


def alter(
    controller: ControllerServices,
    exchange: Exchange,
    resource_type: int,
    resource_name: str,
    changes: Sequence[ConfigChange],
    *,
    replace: bool,
    validate_only: bool,
) -> None:
    """Apply the changes of one resource, or only validate them. Raises KafkaError."""
    controller.authorization.check(exchange, Operation.ALTER_CONFIGS, guarded(resource_type, resource_name))
    outcome = _decide(controller, resource_type, resource_name, changes, replace=replace)
    if not validate_only:
        controller.decide(outcome, exchange.now)


def _decide(
    controller: ControllerServices,
    resource_type: int,
    resource_name: str,
    changes: Sequence[ConfigChange],
    *,
    replace: bool,
) -> Outcome[None, MetadataRecord]:
    image, static = controller.image, controller.configs
    if resource_type == TOPIC:
        return configs.alter_topic_configs(image, resource_name, changes, static=static, replace=replace)
    if resource_type == GROUP:
        return configs.alter_group_configs(image, resource_name, changes, static=static, replace=replace)
    if resource_type == CLIENT_METRICS:
        return configs.alter_client_metrics(image, resource_name, changes, replace=replace)
    if resource_type != BROKER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} is not supported.")
    if resource_name and not BROKER_ID.fullmatch(resource_name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shown(resource_name)} is not a broker id.")
    broker_id = BrokerId(int(resource_name)) if resource_name else ALL_BROKERS
    return configs.alter_broker_configs(
        image, broker_id, changes, static=static, replace=replace, cipher=controller.cipher
    )
