"""BrokerHeartbeat (key 63), v0-2, internal: a broker is alive, and the metadata offset it has replayed (KIP-631).

v1 failed log directories (KIP-858): its replicas there leave the ISR. v2 cordoned ones, which are ignored. A broker is
unfenced once it has replayed its own registration: from then on its metadata responses and its local logs are current.
The response tells a broker in controlled shutdown when it may stop. A controller that is not active records which
broker has this connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId, Offset
from raylog.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    broker_id = BrokerId(request.broker_id)
    image = controller.image
    if not controller.is_active:
        controller.presence.heartbeat_received(broker_id, exchange.connection)
    should_shut_down = False
    try:
        controller.check_active()
        brokers.registered_broker(image, broker_id, broker_epoch=request.broker_epoch)
        controller.sessions.heartbeat_received(broker_id, exchange.connection, now_ms=exchange.now.monotonic_ms)
        caught_up = request.current_metadata_offset >= request.broker_epoch
        if request.offline_log_dirs:
            failed = brokers.fail_directories(image, broker_id, request.offline_log_dirs, controller.allows_unclean)
            controller.decide(failed, exchange.now)
        if request.want_shut_down:
            replicated_upto = controller.observers.min_log_end_offset(
                image.active, Offset(request.current_metadata_offset + 1)
            )
            outcome = brokers.shut_down_broker(
                image, broker_id, next_offset=controller.next_offset, replicated_upto=replicated_upto
            )
            should_shut_down = controller.decide(outcome, exchange.now)
        elif request.want_fence:
            controller.decide(brokers.fence_broker(image, broker_id, controller.allows_unclean), exchange.now)
        elif caught_up:
            controller.decide(brokers.unfence_broker(image, broker_id, controller.allows_unclean), exchange.now)
    except KafkaError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=caught_up, is_fenced=image.brokers[broker_id].fenced, should_shut_down=should_shut_down
    )
