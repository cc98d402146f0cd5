"""ShareGroupDescribe (key 77), v1: state, epochs and members of share groups (KIP-932).

Requires DESCRIBE on each group and on the topics that its members have or subscribe to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.group_description import check_topics, described_in_steps, operations, permitted_group, topic_name
from raylog.broker.share.member_requests import check_enabled
from raylog.core.errors import KafkaError
from raylog.groupcoord.consumer.records import Partitions, numbers_by_topic
from raylog.groupcoord.share.assignor import ASSIGNOR_NAME
from raylog.groupcoord.share.group import ShareMember
from raylog.metadata.image import MetadataImage
from raylog.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: ShareGroupDescribeRequest) -> None:
    def describe(group_id: str) -> DescribedGroup:
        return _describe(broker, exchange, group_id, operations_asked=request.include_authorized_operations)

    exchange.answer_in_steps(
        described_in_steps(exchange, ShareGroupDescribeResponse, DescribedGroup, request.group_ids, describe)
    )


def _describe(broker: BrokerServices, exchange: Exchange, group_id: str, *, operations_asked: bool) -> DescribedGroup:
    try:
        check_enabled(broker)
        _, group = permitted_group(broker, exchange, group_id, "share", lambda shard: shard.share.groups)
        check_topics(broker, exchange, group)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR_NAME,
        members=tuple(_member(broker.image, member) for member in group.members.values()),
        authorized_operations=operations(broker, exchange, group_id, asked=operations_asked),
    )


def _member(image: MetadataImage, member: ShareMember) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        assignment=_assignment(image, member.assigned),
    )


def _assignment(image: MetadataImage, partitions: Partitions) -> Assignment:
    """The partitions of topics that exist."""
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for topic_id, numbers in numbers_by_topic(partitions).items()
            if (name := topic_name(image, topic_id)) is not None
        )
    )
