"""AllocateProducerIds (key 67), v0, internal: a broker takes a block of producer ids to hand out (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    try:
        controller.check_active()
        outcome = brokers.allocate_producer_ids(
            controller.image, BrokerId(request.broker_id), broker_epoch=request.broker_epoch
        )
        block = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
