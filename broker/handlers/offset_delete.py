"""OffsetDelete (key 47), v0: delete a group's committed offsets of some partitions (KIP-496).

Refused for topics to which members of a consumer group are subscribed, and for any other kind of group with members.
Requires DELETE on the group and READ on each topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    group_id = request.group_id
    wanted = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    try:
        broker.authorization.check(exchange, Operation.DELETE, Resource.group(group_id))
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = broker.groups.shard(exchange, group_id)
        if not shard.has(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        shard.classic.check_offset_delete(group_id)
        is_subscribed = shard.subscription(group_id)
        codes = {tp: _code(broker, exchange, is_subscribed, tp) for tp in wanted}
        allowed = [tp for tp, code in codes.items() if code == ErrorCode.NONE]
        shard.forget(shard.offsets.delete(group_id, allowed), exchange.now)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _code(
    broker: BrokerServices, exchange: Exchange, is_subscribed: Callable[[str], bool], tp: TopicPartition
) -> ErrorCode:
    if not broker.authorization.may(exchange, Operation.READ, Resource.topic(tp.topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.image.partition(tp) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if is_subscribed(tp.topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE
