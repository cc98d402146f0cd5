"""DescribeGroups (key 15), v0-6: state, protocol and members of groups.

v3 authorized operations; v4 static members; v5 flexible; v6 returns GROUP_ID_NOT_FOUND for an unknown group
(KIP-1043), which older versions report as Dead, and for a group whose coordinator assigns, which has a request of its
own (ConsumerGroupDescribe, ShareGroupDescribe, StreamsGroupDescribe). Requires DESCRIBE on each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.group_description import described_in_steps, operations
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.classic.group import ClassicGroup, GroupState
from raylog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from raylog.security.acl import Operation, Resource
from raylog.security.authorization import NOT_ASKED

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: DescribeGroupsRequest) -> None:
    def describe(group_id: str) -> DescribedGroup:
        return _describe(broker, exchange, group_id, operations_asked=request.include_authorized_operations)

    exchange.answer_in_steps(
        described_in_steps(exchange, DescribeGroupsResponse, DescribedGroup, request.groups, describe)
    )


def _describe(broker: BrokerServices, exchange: Exchange, group_id: str, *, operations_asked: bool) -> DescribedGroup:
    permitted = operations(broker, exchange, group_id, asked=operations_asked)
    try:
        broker.authorization.check(exchange, Operation.DESCRIBE, Resource.group(group_id))
        shard = broker.groups.shard(exchange, group_id)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    group = shard.classic.groups.get(group_id)
    is_other = any(group_id in kind.groups for kind in (shard.consumer, shard.share, shard.streams))
    if group is None and not is_other and shard.offsets.has(group_id):
        group = ClassicGroup(group_id)
    if group is None:
        missing = _missing(group_id, is_other=is_other) if exchange.api_version >= 6 else None
        return DescribedGroup(
            error_code=ErrorCode.NONE if missing is None else missing.code,
            error_message=None if missing is None else missing.message,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            authorized_operations=NOT_ASKED if missing is not None else permitted,
        )
    agreed = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol_name or "" if agreed else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_for(group.protocol_name) if agreed else b"",
                member_assignment=member.assignment if agreed else b"",
            )
            for member in group.members.values()
        ),
        authorized_operations=permitted,
    )


def _missing(group_id: str, *, is_other: bool) -> KafkaError:
    why = f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
