"""ConsumerGroupDescribe (key 69), v0-1: state, epochs and members of groups whose coordinator assigns (KIP-848).

v1 the type of each member. Requires DESCRIBE on each group and on the topics that its members have or subscribe to.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.group import ConsumerGroup
from raylog.groupcoord.consumer.group import Member as GroupMember
from raylog.groupcoord.consumer.records import NO_PARTITIONS, Partitions, numbers_by_topic
from raylog.metadata.image import MetadataImage
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

NOT_ASKED: Final = -(1 << 31)
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""The type of a member by the protocol that it uses."""
STEP_MEMBERS: Final = 500
"""How many groups and members are described before others are served."""


def handle(broker: BrokerServices, exchange: Exchange, request: ConsumerGroupDescribeRequest) -> None:
    exchange.answer_in_steps(_describe_all(broker, exchange, request))


def _describe_all(
    broker: BrokerServices, exchange: Exchange, request: ConsumerGroupDescribeRequest
) -> Generator[None, None, ConsumerGroupDescribeResponse]:
    groups = EncodedElements(DescribedGroup, of=ConsumerGroupDescribeResponse, version=exchange.api_version)
    described = (_describe(broker, exchange, request, group_id) for group_id in dict.fromkeys(request.group_ids))
    yield from groups.add_in_steps(described, step=STEP_MEMBERS, work=lambda group: 1 + len(group.members))
    return ConsumerGroupDescribeResponse(groups=cast(Any, groups))


def _describe(
    broker: BrokerServices, exchange: Exchange, request: ConsumerGroupDescribeRequest, group_id: str
) -> DescribedGroup:
    resource = Resource.group(group_id)
    try:
        broker.authorization.check(exchange, Operation.DESCRIBE, resource)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = broker.groups.shard(exchange, group_id)
        group = shard.consumer.groups.get(group_id)
        if group is None:
            why = "is not a consumer group" if shard.has(group_id) else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        _check_topics(broker, exchange, group)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=shard.consumer.assignor_of(group),
        members=tuple(_member(broker.image, group, member) for member in group.members.values()),
        authorized_operations=(
            broker.authorization.operations(exchange, resource) if request.include_authorized_operations else NOT_ASKED
        ),
    )


def _check_topics(broker: BrokerServices, exchange: Exchange, group: ConsumerGroup) -> None:
    """Raises KafkaError(TOPIC_AUTHORIZATION_FAILED) if the description would show a topic that is to be hidden."""
    if broker.authorization.authorizer is None:
        return
    owned = {topic_id for member in group.members.values() for topic_id, _ in member.assigned}
    names = group.topic_names() | {name for topic_id in owned if (name := _name(broker.image, topic_id))}
    if not all(broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(name)) for name in sorted(names)):
        message = "The group has described topic(s) that the client is not authorized to describe."
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


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
            if (name := _name(image, topic_id)) is not None
        )
    )


def _name(image: MetadataImage, topic_id: UUID) -> str | None:
    topic = image.topics_by_id.get(topic_id)
    return None if topic is None else topic.name
