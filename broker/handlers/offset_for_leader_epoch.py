"""OffsetForLeaderEpoch (key 23), v2-4: the end offset of a leader epoch in this log (KIP-101, KIP-320).

v2 checks the client's current leader epoch; v3 a replica id; v4 flexible. Requires DESCRIBE on each topic, or
CLUSTER_ACTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.core.ids import LeaderEpoch, TopicPartition
from raylog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from raylog.security.acl import CLUSTER, Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_find(broker, exchange, topic.topic, wanted) for wanted in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _find(broker: BrokerServices, exchange: Exchange, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        if not broker.authorization.may(exchange, Operation.CLUSTER_ACTION, CLUSTER, logs_denial=False):
            broker.authorization.check(exchange, Operation.DESCRIBE, Resource.topic(topic))
        partition = broker.partition(TopicPartition(topic, wanted.partition))
        partition.check_leader_epoch(wanted.current_leader_epoch)
        leader_epoch, end_offset = partition.end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch))
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=leader_epoch, end_offset=end_offset)
