"""BrokerRegistration (key 62), v0-4, internal: register a new incarnation of a broker (KIP-631).

v2 the ids of its log directories (KIP-858): a broker that registers without one that it had has lost its replicas
there. v1, v3 and v4 add fields that raylog ignores: migration from ZooKeeper, the epoch before a clean shutdown, after
which a replica would stay in the ISR."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

log = logging.getLogger("raylog.controller")


def handle(
    controller: ControllerServices, exchange: Exchange, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    if request.cluster_id != controller.identity.cluster_id:
        return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    broker_id = BrokerId(request.broker_id)
    try:
        controller.check_active()
        outcome = brokers.register_broker(
            controller.image,
            broker_id,
            incarnation_id=request.incarnation_id,
            endpoints=tuple((listener.name, listener.host, listener.port) for listener in request.listeners),
            rack=request.rack,
            features=tuple(
                (each.name, each.min_supported_version, each.max_supported_version) for each in request.features
            ),
            directory_ids=request.log_dirs,
            broker_epoch=controller.next_offset,
            predecessor_alive=controller.sessions.is_alive(broker_id),
            allows_unclean=controller.allows_unclean,
        )
        broker_epoch = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        log.warning("broker registration refused", extra={"broker_id": broker_id, "reason": error.message})
        return BrokerRegistrationResponse(error_code=error.code)
    controller.sessions.heartbeat_received(broker_id, exchange.connection, now_ms=exchange.now.monotonic_ms)
    return BrokerRegistrationResponse(broker_epoch=broker_epoch)
