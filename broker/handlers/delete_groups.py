"""DeleteGroups (key 42), v0-2: forget groups without members, and all they have committed. v2 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=_delete(broker, context, group_id))
            for group_id in request.groups_names
        )
    )


def _delete(broker: Broker, context: RequestContext, group_id: str) -> ErrorCode:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = broker.groups.shard(group_id, context.now)
        if group_id not in shard.group_ids():
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        records = [*shard.classic.delete(group_id), *shard.offsets.delete(group_id)]
        broker.groups.write(shard, Outcome(None, records), context.now)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
