"""UnregisterBroker (key 64), v0: forget a broker that will not come back (KIP-631).

As in Kafka only a broker that is not registered is refused. One that still runs leads nothing from then on, and is no
part of the cluster until it is started anew; one that still holds replicas leaves them without a broker, so that they
should be moved away before. Asks for ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from raylog.controller.controller import Controller
    from raylog.transport.request import RequestContext


def handle(
    controller: Controller, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    broker_id = BrokerId(request.broker_id)
    try:
        outcome = brokers.unregister_broker(controller.image, broker_id, controller.may_be_unclean)
        controller.decide(outcome, context.now)
    except KafkaError as error:
        return refused(error)
    controller.sessions.forget(broker_id)
    return UnregisterBrokerResponse()


def refused(error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
