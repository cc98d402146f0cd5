"""AlterConfigs (key 33), v0-2, and IncrementalAlterConfigs (key 44), v0-1: validated here, decided by the controller.

Requests are forwarded to the controller, as those in `forwarded`. Before that, new TLS keys and SASL settings of a
listener are validated: the files are those of the broker whose configuration is changed, so the request must be sent to
that broker, as in Kafka. Requires ALTER_CONFIGS on the cluster; the controller checks it for all resources.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from raylog.broker.handlers.forwarded import envelope_of, forward
from raylog.broker.listener_keys import check_listener_keys
from raylog.config.table import BROKER_CONFIG
from raylog.core.config import Configs, overriding_listener, shown
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.metadata.config_resources import BROKER, BROKER_ID
from raylog.metadata.handlers.alter_loggers import alter_loggers, concerns_loggers
from raylog.protocol.error_responses import error_response
from raylog.protocol.messages.alter_configs import AlterConfigsRequest
from raylog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raylog.security.acl import CLUSTER, Operation
from raylog.transport.node import Job, JobKind

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

log = logging.getLogger("raylog.broker")
SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs; the others do not apply to these keys."""


class _Change(NamedTuple):
    """A change of the configuration of one broker."""

    broker: str
    values: Mapping[str, str | None]
    """None deletes the value of a key."""
    replace: bool


def handle(broker: BrokerServices, exchange: Exchange, request: AlterConfigsRequest) -> None:
    changes = [
        _Change(resource.resource_name, {each.name: each.value for each in resource.configs}, replace=True)
        for resource in request.resources
        if resource.resource_type == BROKER
    ]
    _validate_and_forward(broker, exchange, request, changes)


def handle_incremental(broker: BrokerServices, exchange: Exchange, request: IncrementalAlterConfigsRequest) -> None:
    if concerns_loggers(request):
        exchange.answer(alter_loggers(broker, exchange, request))
        return
    changes = [
        _Change(
            resource.resource_name,
            {
                each.name: each.value if each.config_operation == SET else None
                for each in resource.configs
                if each.config_operation in (SET, DELETE)
            },
            replace=False,
        )
        for resource in request.resources
        if resource.resource_type == BROKER
    ]
    _validate_and_forward(broker, exchange, request, changes)


def _validate_and_forward(broker: BrokerServices, exchange: Exchange, request: Any, changes: list[_Change]) -> None:
    """If a change is refused, nothing of the request is carried out."""
    envelope = envelope_of(exchange)
    of_listeners = [(change, listeners) for change in changes if (listeners := _listeners_of(broker, change))]
    if not of_listeners or not broker.authorization.may(exchange, Operation.ALTER_CONFIGS, CLUSTER):
        forward(broker, exchange, request, envelope)
        return

    def refuse(error: KafkaError) -> None:
        exchange.answer(error_response(request, ErrorCode.INVALID_REQUEST, error.message))

    checks = []
    for change, listeners in of_listeners:
        if change.broker != str(broker.identity.node_id):
            refuse(_not_this_broker(broker, change))
            return
        with suppress(ConfigError):  # the controller refuses the resource as well
            checks.append((_configs_after(broker, change), listeners))

    def run() -> None:
        for configs, listeners in checks:
            check_listener_keys(configs, listeners)

    def done(failure: Exception | None) -> None:
        if exchange.cancelled:
            return
        if failure is None:
            forward(broker, exchange, request, envelope)
        elif isinstance(failure, KafkaError):
            refuse(failure)
        else:
            log.error("listener keys cannot be checked", exc_info=failure)
            refuse(ConfigError("The new keys of the listener cannot be checked: see the log of the broker."))

    exchange.hold_back()
    broker.add_job(Job(run, done, JobKind.CHECK_KEYS, expected=Exception))


def _not_this_broker(broker: BrokerServices, change: _Change) -> KafkaError:
    message = (
        f"Keys of a listener of broker {shown(change.broker)} must be changed by a request to that broker;"
        f" this is broker {broker.identity.node_id}."
    )
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _listeners_of(broker: BrokerServices, change: _Change) -> frozenset[str]:
    """The listeners whose keys are changed."""
    if not change.broker:
        return frozenset()  # the controller refuses them
    names = set(change.values)
    if change.replace and BROKER_ID.fullmatch(change.broker):  # of another broker as well: it removes its keys
        for stored in (broker.image.broker_configs, broker.image.broker_passwords):
            names.update(stored.get(BrokerId(int(change.broker)), {}))
    return frozenset(listener.upper() for name in names if (listener := overriding_listener(name)))


def _configs_after(broker: BrokerServices, change: _Change) -> Configs:
    """Raises ConfigError."""
    BROKER_CONFIG.parse({name: text for name, text in change.values.items() if text is not None})
    return broker.configs_after(change.values, replace=change.replace)
