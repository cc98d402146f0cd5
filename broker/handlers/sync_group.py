"""SyncGroup (key 14), v0-5: a member gets its part of the assignment; the leader sends the whole assignment.

v3 static members (KIP-345); v4 flexible; v5 type and name of the protocol, which must be the group's (KIP-559). The
response is sent once the leader's assignment is in the log. Requires READ on the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.classic.group import Synced
from raylog.groupcoord.classic.groups import SyncRequest
from raylog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: SyncGroupRequest) -> SyncGroupResponse | None:
    try:
        broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
        shard = broker.groups.named(exchange, request.group_id)
        if exchange.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    except KafkaError as error:
        return _response(Synced(error.code))
    wanted = SyncRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    shard.sync(wanted, lambda synced: exchange.answer(_response(synced)), exchange.now)
    return None


def _response(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
