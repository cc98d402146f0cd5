"""LeaveGroup (key 13), v0-5: remove members at once, without waiting for their session timeout.

v3 several members, static ones by instance id alone (KIP-345); v4 flexible; v5 a reason. Requires READ on the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: LeaveGroupRequest) -> LeaveGroupResponse:
    leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    if exchange.api_version < 3:
        leaving = [(request.member_id, None)]
    try:
        broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
        shard = broker.groups.named(exchange, request.group_id)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    codes = shard.leave(request.group_id, leaving, exchange.now)
    if exchange.api_version < 3:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(leaving, codes, strict=True)
        )
    )
