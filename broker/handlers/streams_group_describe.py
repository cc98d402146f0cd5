"""StreamsGroupDescribe (key 89), v0: state, epochs, topology and members of streams groups (KIP-1071).

Requires DESCRIBE on each group and on the topics of its topology.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.streams.configured import Configured
from raylog.groupcoord.streams.group import StreamsGroup, StreamsMember
from raylog.groupcoord.streams.tasks import NO_TASKS, TaskId, Tasks, by_subtopology
from raylog.groupcoord.streams.topology import topic_names
from raylog.metadata.features import STREAMS_FEATURE
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from raylog.protocol.messages.streams_group_heartbeat import Subtopology as SentSubtopology
from raylog.protocol.messages.streams_group_heartbeat import TopicInfo as SentTopic
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

NOT_ASKED: Final = -(1 << 31)
STEP_MEMBERS: Final = 500
"""How many groups and members are described before others are served."""


def handle(broker: BrokerServices, exchange: Exchange, request: StreamsGroupDescribeRequest) -> None:
    exchange.answer_in_steps(_describe_all(broker, exchange, request))


def _describe_all(
    broker: BrokerServices, exchange: Exchange, request: StreamsGroupDescribeRequest
) -> Generator[None, None, StreamsGroupDescribeResponse]:
    groups = EncodedElements(DescribedGroup, of=StreamsGroupDescribeResponse, version=exchange.api_version)
    described = (_describe(broker, exchange, request, group_id) for group_id in dict.fromkeys(request.group_ids))
    yield from groups.add_in_steps(described, step=STEP_MEMBERS, work=lambda group: 1 + len(group.members))
    return StreamsGroupDescribeResponse(groups=cast(Any, groups))


def _describe(
    broker: BrokerServices, exchange: Exchange, request: StreamsGroupDescribeRequest, group_id: str
) -> DescribedGroup:
    resource = Resource.group(group_id)
    try:
        if not broker.image.feature_level(STREAMS_FEATURE):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Streams groups are not enabled.")
        broker.authorization.check(exchange, Operation.DESCRIBE, resource)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = broker.groups.shard(exchange, group_id)
        group = shard.streams.groups.get(group_id)
        if group is None:
            why = "is not a streams group" if shard.has(group_id) else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        _check_topics(broker, exchange, group)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group, shard.streams.configured(group)),
        members=tuple(
            _member(member, group.target.get(member.member_id, NO_TASKS)) for member in group.members.values()
        ),
        authorized_operations=(
            broker.authorization.operations(exchange, resource) if request.include_authorized_operations else NOT_ASKED
        ),
    )


def _check_topics(broker: BrokerServices, exchange: Exchange, group: StreamsGroup) -> None:
    """Raises KafkaError(TOPIC_AUTHORIZATION_FAILED) if the description would show a topic that is to be hidden."""
    if broker.authorization.authorizer is None or group.topology is None:
        return
    names = topic_names(group.topology)
    if not all(broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(name)) for name in names):
        message = "The described group uses topics that the client is not authorized to describe."
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


def _topology(group: StreamsGroup, configured: Configured | None) -> Topology | None:
    """The topology; once it is ready, with the numbers of partitions that internal topics have."""
    if group.topology is None:
        return None
    counts = configured.partition_counts if configured is not None and configured.is_ready else {}

    def topics(sent: tuple[SentTopic, ...]) -> tuple[TopicInfo, ...]:
        return tuple(
            TopicInfo(
                name=topic.name,
                partitions=counts.get(topic.name, topic.partitions),
                replication_factor=topic.replication_factor,
                topic_configs=tuple(KeyValue(key=each.key, value=each.value) for each in topic.topic_configs),
            )
            for topic in sorted(sent, key=lambda each: each.name)
        )

    def subtopology(sent: SentSubtopology) -> Subtopology:
        return Subtopology(
            subtopology_id=sent.subtopology_id,
            source_topics=tuple(sorted(sent.source_topics)),
            repartition_sink_topics=tuple(sorted(sent.repartition_sink_topics)),
            state_changelog_topics=topics(sent.state_changelog_topics),
            repartition_source_topics=topics(sent.repartition_source_topics),
        )

    by_id = sorted(group.topology.subtopologies, key=lambda each: each.subtopology_id)
    return Topology(epoch=group.topology.epoch, subtopologies=tuple(map(subtopology, by_id)))


def _member(member: StreamsMember, target: Tasks) -> Member:
    endpoint = member.endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=tuple(KeyValue(key=key, value=value) for key, value in member.client_tags),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Tasks) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: frozenset[TaskId]) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in by_subtopology(tasks).items()
    )
