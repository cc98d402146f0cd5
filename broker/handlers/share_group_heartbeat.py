"""ShareGroupHeartbeat (key 76), v1: join, remain in and leave a share group (KIP-932).

Requires READ on the group and DESCRIBE on the topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.share.member_requests import check_enabled
from raylog.core.errors import KafkaError
from raylog.groupcoord.consumer.records import numbers_by_topic
from raylog.groupcoord.share.groups import JOINING, ShareAnswer, ShareHeartbeat, check
from raylog.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    try:
        answer = _serve(broker, exchange, request)
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    assignment = answer.assignment
    return ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in numbers_by_topic(assignment).items()
            )
        ),
    )


def _serve(broker: BrokerServices, exchange: Exchange, request: ShareGroupHeartbeatRequest) -> ShareAnswer:
    check_enabled(broker)
    broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
    for name in dict.fromkeys(request.subscribed_topic_names or ()):
        broker.authorization.check(exchange, Operation.DESCRIBE, Resource.topic(name))
    heartbeat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        topic_names=request.subscribed_topic_names,
        client_id=exchange.client_id or "",
        client_host=f"/{exchange.connection.peer_host}",
    )
    check(heartbeat)
    shard = broker.groups.shard(exchange, request.group_id)
    if request.member_epoch == JOINING:
        broker.groups.check_room(exchange, request.group_id)
    return shard.share_heartbeat(heartbeat, exchange.now)
