"""LeaveGroup (key 13), v0-5: members go, and need not be waited for. v3 several at once (KIP-345); v4 flexible;
v5 a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    try:
        classic = broker.groups.shard(request.group_id, context.now).classic
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if context.api_version < 3:
        return LeaveGroupResponse(error_code=classic.leave(request.group_id, request.member_id, None, context.now))
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=classic.leave(request.group_id, each.member_id, each.group_instance_id, context.now),
            )
            for each in request.members
        )
    )
