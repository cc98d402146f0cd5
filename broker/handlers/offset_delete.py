"""OffsetDelete (key 47), v0: forget what a group has committed in some partitions (KIP-496).

A topic that a member of the group is subscribed to is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.outcome import Outcome
from raylog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    group_id = request.group_id
    wanted = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    try:
        shard = broker.groups.shard(group_id, context.now)
        if group_id not in shard.group_ids():
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed = shard.classic.subscribed_topics(group_id)
        codes = {tp: _code(broker, tp, subscribed) for tp in wanted}
        allowed = [tp for tp, code in codes.items() if code == ErrorCode.NONE]
        broker.groups.write(shard, Outcome(None, shard.offsets.delete(group_id, allowed)), context.now)
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


def _code(broker: Broker, tp: TopicPartition, subscribed: set[str] | None) -> ErrorCode:
    if broker.image.partition(tp) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if subscribed is None or tp.topic in subscribed:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE
