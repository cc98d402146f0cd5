"""JoinGroup (key 11), v0-9: join a group, or remain a member through a rebalance.

v1 rebalance timeout; v4 the member id is assigned before the member joins (KIP-394); v5 static members (KIP-345); v6
flexible; v7 protocol type in the response; v8 a reason; v9 a static leader may keep the assignment (KIP-814). The
response is sent when all members have joined, or the rebalance timeout has expired; at once to members of a group of
the consumer protocol (KIP-848). Requires READ on the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.groupcoord.classic.group import Joined
from raylog.groupcoord.classic.groups import JoinRequest
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: JoinGroupRequest) -> JoinGroupResponse | None:
    version = exchange.api_version
    try:
        broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
        shard = broker.groups.named(exchange, request.group_id)
        broker.groups.check_room(exchange, request.group_id)
    except KafkaError as error:
        return _response(version, Joined(error.code, request.member_id))
    wanted = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=exchange.client_id or "",
        client_host=f"/{exchange.connection.peer_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        require_known_member_id=version >= 4,
        supports_skip_assignment=version >= 9,
    )
    shard.join(wanted, lambda joined: exchange.answer(_response(version, joined)), exchange.now)
    return None


def _response(version: int, joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=joined.error_code,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name if version >= 7 else joined.protocol_name or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in joined.members
        ),
    )
