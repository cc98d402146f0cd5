"""ConsumerGroupHeartbeat (key 68), v0-1: join, remain in and leave a group whose coordinator assigns (KIP-848).

v1 regular expressions, and the member chooses its id. Requires READ on the group and DESCRIBE on the named topics;
topics that match a regular expression and that the member may not describe are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.heartbeat import JOINING, Answer, Heartbeat
from raylog.groupcoord.consumer.records import Partitions, numbers_by_topic
from raylog.metadata.features import GROUP_FEATURE
from raylog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    try:
        answer = _serve(broker, exchange, request)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _serve(broker: BrokerServices, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> Answer:
    def may_describe(topic: str) -> bool:
        return broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(topic), logs_denial=False)

    if not broker.settings.consumer_groups.enabled or not broker.image.feature_level(GROUP_FEATURE):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Groups of the consumer protocol are not enabled.")
    broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
    for name in dict.fromkeys(request.subscribed_topic_names or ()):
        broker.authorization.check(exchange, Operation.DESCRIBE, Resource.topic(name))
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if exchange.api_version >= 1 and not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    shard = broker.groups.shard(exchange, request.group_id)
    if request.member_epoch == JOINING:
        broker.groups.check_room(exchange, request.group_id)
    return shard.heartbeat(_heartbeat(exchange, request), exchange.now, may_describe=may_describe)


def _heartbeat(exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    owned: Partitions | None = None
    if request.topic_partitions is not None:
        owned = frozenset((topic.topic_id, number) for topic in request.topic_partitions for number in topic.partitions)
    return Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=owned,
        client_id=exchange.client_id or "",
        client_host=f"/{exchange.connection.peer_host}",
    )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in numbers_by_topic(partitions).items()
        )
    )
