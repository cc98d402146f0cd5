"""UnregisterBroker (key 64), v0: forget a broker that will not come back (KIP-631).

One that is not registered is refused, as in Kafka; and so is one that is alive, which Kafka would let run on outside of
its cluster. One that still holds replicas leaves them without a broker: they should be moved away before. Asks for
ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.controller import Controller
    from raylog.transport.exchange import Exchange


def handle(controller: Controller, exchange: Exchange, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
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
