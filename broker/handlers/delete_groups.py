"""DeleteGroups (key 42), v0-2: delete groups without members, and their committed offsets. v2 flexible.

Requires DELETE on each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=_delete(broker, exchange, group_id))
            for group_id in request.groups_names
        )
    )


def _delete(broker: BrokerServices, exchange: Exchange, group_id: str) -> ErrorCode:
    try:
        broker.authorization.check(exchange, Operation.DELETE, Resource.group(group_id))
        broker.groups.shard(exchange, group_id).delete(group_id, exchange.now)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
