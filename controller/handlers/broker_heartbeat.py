"""BrokerHeartbeat (key 63), v0-2, internal: a broker is alive, and up to where it knows the metadata (KIP-631).

v1 failed log directories; v2 cordoned ones; neither is looked at. A broker is unfenced once it has replayed its own
registration: what it tells clients, and what it does to its disk, is then true. One that wants to stop hears when
it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId, Offset
from raylog.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from raylog.controller.controller import Controller
    from raylog.transport.request import RequestContext


def handle(controller: Controller, context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    broker_id = BrokerId(request.broker_id)
    image = controller.image
    should_shut_down = False
    try:
        brokers.registered_broker(image, broker_id, broker_epoch=request.broker_epoch)
        controller.sessions.heard(broker_id, context.connection, now_ms=context.now.monotonic_ms)
        caught_up = request.current_metadata_offset >= request.broker_epoch
        if request.want_shut_down:
            known_upto = controller.observers.all_know_upto(image.active, Offset(request.current_metadata_offset + 1))
            outcome = brokers.shut_down_broker(
                image, broker_id, next_offset=controller.next_offset, known_upto=known_upto
            )
            should_shut_down = controller.decide(outcome, context.now)
        elif request.want_fence:
            controller.decide(brokers.fence_broker(image, broker_id), context.now)
        elif caught_up:
            controller.decide(brokers.unfence_broker(image, broker_id), context.now)
    except KafkaError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=caught_up, is_fenced=image.brokers[broker_id].fenced, should_shut_down=should_shut_down
    )
