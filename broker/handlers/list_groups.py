"""ListGroups (key 16), v0-5: the groups this broker coordinates. v3 flexible; v4 filter by state; v5 by type.

Omits groups without DESCRIBE, unless the client has DESCRIBE on the cluster.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.config.groups import CLASSIC, CONSUMER, SHARE, STREAMS
from raylog.core.errors import KafkaError
from raylog.groupcoord.classic.group import GroupState
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raylog.security.acl import CLUSTER, Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.groupcoord.shard import GroupShard
    from raylog.transport.exchange import Exchange


STEP_GROUPS: Final = 1000
"""How many groups are looked at before others are served."""


def handle(broker: BrokerServices, exchange: Exchange, request: ListGroupsRequest) -> None:
    exchange.answer_in_steps(_list(broker, exchange, request))


def _list(
    broker: BrokerServices, exchange: Exchange, request: ListGroupsRequest
) -> Generator[None, None, ListGroupsResponse]:
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    groups = EncodedElements(ListedGroup, of=ListGroupsResponse, version=exchange.api_version)
    try:
        shards = list(broker.groups.all(exchange))
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    everything = broker.authorization.may(exchange, Operation.DESCRIBE, CLUSTER, logs_denial=False)
    for shard in shards:
        for number, group_id in enumerate(sorted(shard.group_ids()), 1):
            if everything or broker.authorization.may(
                exchange, Operation.DESCRIBE, Resource.group(group_id), logs_denial=False
            ):
                group = _listed(shard, group_id)
                if (not states or group.group_state.lower() in states) and (not types or group.group_type in types):
                    groups.add(group)
            if number % STEP_GROUPS == 0:
                yield
    return ListGroupsResponse(groups=cast(Any, groups))


def _listed(shard: GroupShard, group_id: str) -> ListedGroup:
    consumer_group = shard.consumer.groups.get(group_id)
    if consumer_group is not None:
        return ListedGroup(
            group_id=group_id, protocol_type=CONSUMER, group_state=consumer_group.state, group_type=CONSUMER
        )
    share_group = shard.share.groups.get(group_id)
    if share_group is not None:
        return ListedGroup(group_id=group_id, protocol_type=SHARE, group_state=share_group.state, group_type=SHARE)
    streams_group = shard.streams.groups.get(group_id)
    if streams_group is not None:
        return ListedGroup(
            group_id=group_id, protocol_type=STREAMS, group_state=streams_group.state, group_type=STREAMS
        )
    group = shard.classic.groups.get(group_id)
    if group is None:  # it has committed offsets, but never had a member
        return ListedGroup(group_id=group_id, group_state=GroupState.EMPTY.value, group_type=CLASSIC)
    return ListedGroup(
        group_id=group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )
