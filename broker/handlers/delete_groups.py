"""DeleteGroups (key 42), v0-2: delete groups without members, and their committed offsets. v2 flexible.

Requires DELETE on each group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.records import TopicIdPartition
from raylog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: DeleteGroupsRequest) -> None:
    results: dict[str, ErrorCode] = {}
    waiting = set(request.groups_names)

    def done(group_id: str, code: ErrorCode) -> None:
        results[group_id] = code
        waiting.discard(group_id)
        if not waiting:
            answer()

    def answer() -> None:
        if not exchange.cancelled:
            exchange.answer(
                DeleteGroupsResponse(
                    results=tuple(
                        DeletableGroupResult(group_id=group_id, error_code=results[group_id])
                        for group_id in request.groups_names
                    )
                )
            )

    if not waiting:
        answer()
    for group_id in sorted(waiting):
        try:
            _delete(broker, exchange, group_id, done)
        except KafkaError as error:
            done(group_id, error.code)


def _delete(broker: BrokerServices, exchange: Exchange, group_id: str, done: Callable[[str, ErrorCode], None]) -> None:
    """The state of a share group is deleted first, at its share coordinators: the group knows what is left of it."""
    broker.authorization.check(exchange, Operation.DELETE, Resource.group(group_id))
    shard = broker.groups.shard(exchange, group_id)
    group = shard.share.groups.get(group_id)
    if group is None:
        shard.delete(group_id, exchange.now)
        done(group_id, ErrorCode.NONE)
        return
    shard.share.empty(group_id)
    partitions = group.initialized | group.initializing
    shard.share.begin_deletion(group_id, partitions, exchange.now)

    def deleted(errors: Mapping[TopicIdPartition, KafkaError], now: Now) -> None:
        code = next((error.code for error in errors.values()), ErrorCode.NONE)
        try:
            shard = broker.groups.shard(exchange, group_id)
            shard.share.has_no_state(group_id, partitions - errors.keys(), now)
            if code is ErrorCode.NONE:
                shard.delete(group_id, now)
        except KafkaError as error:
            code = error.code
        done(group_id, code)

    broker.persister.delete_all(group_id, partitions, deleted, exchange.now)
