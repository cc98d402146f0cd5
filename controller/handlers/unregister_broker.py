"""UnregisterBroker (key 64), v0: remove a broker that will not return (KIP-631).

Unregistered brokers are rejected, as in Kafka; so are live ones, which Kafka would leave running outside the cluster.
Replicas on the broker become unavailable: they should be reassigned before. Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    broker_id = BrokerId(request.broker_id)
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        controller.decide(brokers.unregister_broker(controller.image, broker_id), exchange.now)
    except KafkaError as error:
        return refused(error)
    controller.sessions.forget(broker_id)
    return UnregisterBrokerResponse()


def refused(error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
