"""Requests of clients that are connected to a controller, not to a broker: --bootstrap-controller of Kafka's tools.

They are those that brokers forward in an Envelope, and a few that every node answers from its image. A controller that
is not active refuses the former with NOT_CONTROLLER. As in Kafka, it serves no Metadata: DescribeCluster says where the
controllers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raylog.controller.handlers import describe_cluster
from raylog.controller.handlers.envelope import FORWARDED_HANDLERS
from raylog.core.config import overriding_listener
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.metadata.config_resources import BROKER, BROKER_ID
from raylog.metadata.handlers import describe_acls, describe_configs
from raylog.metadata.handlers.alter_loggers import alter_loggers, concerns_loggers
from raylog.protocol import registry
from raylog.protocol.error_responses import error_response
from raylog.protocol.messages.alter_configs import AlterConfigsRequest
from raylog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raylog.security.delegation_tokens import check_token_requests
from raylog.transport.handlers import api_versions, sasl_authenticate, sasl_handshake

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange, Handler

Decide = Callable[["ControllerServices", "Exchange", Any], Any]


def _if_active(decide: Decide, controller: ControllerServices, exchange: Exchange, request: Any) -> Any:
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    return decide(controller, exchange, request)


def _token_request(decide: Decide, controller: ControllerServices, exchange: Exchange, request: Any) -> Any:
    try:
        check_token_requests(exchange.client, exchange.connection.listener.security)
    except KafkaError as error:
        return error_response(request, error.code)
    return _if_active(decide, controller, exchange, request)


def _alter_configs(controller: ControllerServices, exchange: Exchange, request: AlterConfigsRequest) -> Any:
    for each in request.resources:
        names = [entry.name for entry in each.configs]
        if each.resource_type == BROKER and BROKER_ID.fullmatch(each.resource_name):  # keys left out are removed
            broker_id = BrokerId(int(each.resource_name))
            for stored in (controller.image.broker_configs, controller.image.broker_passwords):
                names += stored.get(broker_id, ())
        if each.resource_type == BROKER and (refusal := _refusal(each.resource_name, names)):
            return error_response(request, ErrorCode.INVALID_REQUEST, refusal)
    return _if_active(FORWARDED_HANDLERS[registry.ALTER_CONFIGS], controller, exchange, request)


def _incremental_alter_configs(
    controller: ControllerServices, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> Any:
    if concerns_loggers(request):
        return alter_loggers(controller, exchange, request)
    for each in request.resources:
        names = [entry.name for entry in each.configs]
        if each.resource_type == BROKER and (refusal := _refusal(each.resource_name, names)):
            return error_response(request, ErrorCode.INVALID_REQUEST, refusal)
    return _if_active(FORWARDED_HANDLERS[registry.INCREMENTAL_ALTER_CONFIGS], controller, exchange, request)


def _refusal(broker: str, names: list[str]) -> str:
    """Why the keys cannot be changed here; empty if they can. A broker validates the files that its keys name."""
    if broker and any(map(overriding_listener, names)):
        return f"Keys of a listener of broker {broker} must be changed by a request to that broker."
    return ""


_TOKENS: Final = frozenset(
    {registry.CREATE_DELEGATION_TOKEN, registry.RENEW_DELEGATION_TOKEN, registry.EXPIRE_DELEGATION_TOKEN}
)
CLIENT_HANDLERS: Final[Mapping[int, Handler]] = {
    registry.SASL_HANDSHAKE: sasl_handshake.handle,
    registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
    registry.API_VERSIONS: api_versions.handle,
    registry.DESCRIBE_CLUSTER: describe_cluster.handle,
    registry.DESCRIBE_ACLS: describe_acls.handle,
    registry.DESCRIBE_CONFIGS: describe_configs.handle,
    **{
        key: partial(_token_request if key in _TOKENS else _if_active, each) for key, each in FORWARDED_HANDLERS.items()
    },
    registry.ALTER_CONFIGS: _alter_configs,
    registry.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
}
"""The APIs of the listeners for clients."""
