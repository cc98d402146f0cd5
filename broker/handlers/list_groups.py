"""ListGroups (key 16), v0-5: the groups this broker coordinates. v3 flexible; v4 filter by state; v5 by type.

Omits groups without DESCRIBE, unless the client has DESCRIBE on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.groupcoord.classic.group import GroupState
from raylog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raylog.security.acl import CLUSTER, Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.groupcoord.shards import GroupShard
    from raylog.transport.exchange import Exchange

CLASSIC = "classic"


def handle(broker: BrokerServices, exchange: Exchange, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    try:
        listed = [
            _listed(shard, group_id)
            for shard in broker.groups.all(exchange)
            for group_id in sorted(shard.group_ids())
            if broker.authorization.may(exchange, Operation.DESCRIBE, CLUSTER)
            or broker.authorization.may(exchange, Operation.DESCRIBE, Resource.group(group_id))
        ]
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    if types and CLASSIC not in types:
        listed = []
    return ListGroupsResponse(
        groups=tuple(group for group in listed if not states or group.group_state.lower() in states)
    )


def _listed(shard: GroupShard, group_id: str) -> ListedGroup:
    group = shard.classic.groups.get(group_id)
    if group is None:  # it has committed offsets, but never had a member
        return ListedGroup(group_id=group_id, group_state=GroupState.EMPTY.value, group_type=CLASSIC)
    return ListedGroup(
        group_id=group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )
