"""Heartbeat (key 12), v0-4: a member is alive. v3 static members; v4 flexible. Requires READ on the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
        shard = broker.groups.named(exchange, request.group_id)
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    code = shard.classic_heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id, exchange.now
    )
    return HeartbeatResponse(error_code=code)
