"""ConsumerGroupDescribe (key 69), v0-1: state, epochs and members of groups whose coordinator assigns (KIP-848).

v1 the type of each member. Requires DESCRIBE on each group and on the topics that its members have or subscribe to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.broker.group_description import check_topics, described_in_steps, operations, permitted_group, topic_name
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.group import ConsumerGroup
from raylog.groupcoord.consumer.group import Member as GroupMember
from raylog.groupcoord.consumer.records import NO_PARTITIONS, Partitions, numbers_by_topic
from raylog.metadata.features import GROUP_FEATURE
from raylog.metadata.image import MetadataImage
from raylog.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""The type of a member by the protocol that it uses."""


def handle(broker: BrokerServices, exchange: Exchange, request: ConsumerGroupDescribeRequest) -> None:
    def describe(group_id: str) -> DescribedGroup:
        return _describe(broker, exchange, group_id, operations_asked=request.include_authorized_operations)

    exchange.answer_in_steps(
        described_in_steps(exchange, ConsumerGroupDescribeResponse, DescribedGroup, request.group_ids, describe)
    )


def _describe(broker: BrokerServices, exchange: Exchange, group_id: str, *, operations_asked: bool) -> DescribedGroup:
    try:
        if not broker.settings.consumer_groups.enabled or not broker.image.feature_level(GROUP_FEATURE):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Groups of the consumer protocol are not enabled.")
        shard, group = permitted_group(broker, exchange, group_id, "consumer", lambda shard: shard.consumer.groups)
        check_topics(broker, exchange, group)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=shard.consumer.assignor_of(group),
        members=tuple(_member(broker.image, group, member) for member in group.members.values()),
        authorized_operations=operations(broker, exchange, group_id, asked=operations_asked),
    )


def _member(image: MetadataImage, group: ConsumerGroup, member: GroupMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(image, member.assigned),
        target_assignment=_assignment(image, group.target.get(member.member_id, NO_PARTITIONS)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
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
