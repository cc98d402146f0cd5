"""StreamsGroupDescribe (key 89), v0: state, epochs, topology and members of streams groups (KIP-1071).

Requires DESCRIBE on each group and on the topics of its topology.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.group_description import check_topic_names, described_in_steps, operations, permitted_group
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.streams.configured import Configured
from raylog.groupcoord.streams.group import StreamsGroup, StreamsMember
from raylog.groupcoord.streams.tasks import NO_TASKS, TaskId, Tasks, by_subtopology
from raylog.groupcoord.streams.topology import topic_names
from raylog.metadata.features import STREAMS_FEATURE
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

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: StreamsGroupDescribeRequest) -> None:
    def describe(group_id: str) -> DescribedGroup:
        return _describe(broker, exchange, group_id, operations_asked=request.include_authorized_operations)

    exchange.answer_in_steps(
        described_in_steps(exchange, StreamsGroupDescribeResponse, DescribedGroup, request.group_ids, describe)
    )


def _describe(broker: BrokerServices, exchange: Exchange, group_id: str, *, operations_asked: bool) -> DescribedGroup:
    try:
        if not broker.settings.streams_groups.enabled or not broker.image.feature_level(STREAMS_FEATURE):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Streams groups are not enabled.")
        shard, group = permitted_group(broker, exchange, group_id, "streams", lambda shard: shard.streams.groups)
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
        authorized_operations=operations(broker, exchange, group_id, asked=operations_asked),
    )


def _check_topics(broker: BrokerServices, exchange: Exchange, group: StreamsGroup) -> None:
    """Raises KafkaError(TOPIC_AUTHORIZATION_FAILED) if the description would show a topic that is to be hidden."""
    if broker.authorization.authorizer is None or group.topology is None:
        return
    names = topic_names(group.topology)
    message = "The described group uses topics that the client is not authorized to describe."
    check_topic_names(broker, exchange, names, message)


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
