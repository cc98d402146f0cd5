"""ShareAcknowledge (key 79), v1-2: acknowledge records that a member of a share group has acquired (KIP-932).

v2 renewal of acquisition locks. Epoch -1 ends the session, which releases all other records of the member. The response
waits until all decisions are stored. Requires READ on the group and on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from raylog.broker.share.acknowledgements import Results, acknowledge, client_code
from raylog.broker.share.member_requests import check_enabled, check_member, leader_of, node_endpoints
from raylog.broker.share.sessions import SessionKey
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | None:
    wanted = [
        ((topic.topic_id, each.partition_index), each.acknowledgement_batches)
        for topic in request.topics
        for each in topic.partitions
    ]
    try:
        group, member_id = check_member(request)
        check_enabled(broker)
        broker.authorization.check(exchange, Operation.READ, Resource.group(group))
        if len({partition for partition, _ in wanted}) < len(wanted):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is named twice.")
        session = broker.share_sessions.acknowledged(SessionKey(group, member_id), request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)

    def acknowledged(results: Results) -> None:
        if session.ended:
            broker.end_share_session(session.key, broker.now, orderly=True)
        if not exchange.cancelled:
            exchange.answer(_response(broker, exchange, group, results))

    acknowledge(broker, exchange, request, wanted, acknowledged)
    return None


def _response(broker: BrokerServices, exchange: Exchange, group: str, results: Results) -> ShareAcknowledgeResponse:
    by_topic: dict[UUID, list[PartitionData]] = {}
    leaders = []
    for (topic_id, number), error in results.items():
        code, message = client_code(error)
        leader = LeaderIdAndEpoch()
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader_id, leader_epoch = leader_of(broker, (topic_id, number))
            leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            leaders.append(leader_id)
        by_topic.setdefault(topic_id, []).append(
            PartitionData(partition_index=number, error_code=code, error_message=message, current_leader=leader)
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.share_limits(group).lock_duration_ms,
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic.items()
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in node_endpoints(broker, exchange, leaders)
        ),
    )
