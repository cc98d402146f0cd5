"""(shell) The requests about reassignments that tools need, one call each. Error codes are raised as KafkaError."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from raylog.client import cluster_admin as admin
from raylog.client.cluster_client import ClusterClient
from raylog.client.reassignment_plan import Plan, throttled_replicas
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


def present_plan(client: ClusterClient, topics: Sequence[str] | None) -> Plan:
    """The current replicas of these topics, or of all. Raises KafkaError for a topic that does not exist."""
    view = client.view(None if topics is None else list(topics))
    names = [topic.name or "" for topic in view.metadata.topics] if topics is None else topics
    return {
        TopicPartition(name, each.partition_index): each.replica_nodes
        for name in names
        for each in view.topic(name).partitions
    }


def check_holds_nothing(client: ClusterClient, broker_id: int) -> None:
    """Raises KafkaError: INVALID_REQUEST if it has replicas, TOPIC_AUTHORIZATION_FAILED if some topics are hidden."""
    admin.check_sees_all_topics(client)
    held = [tp for tp, replicas in present_plan(client, None).items() if broker_id in replicas]
    if held:
        message = f"broker {broker_id} still has {len(held)} replica(s), such as one of {min(held)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def alter(
    client: ClusterClient, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, KafkaError]:
    """Start reassignments, or cancel them (None). Returns the errors by partition. Raises KafkaError."""
    topics = tuple(
        ReassignableTopic(
            name=topic,
            partitions=tuple(
                ReassignablePartition(partition_index=tp.partition, replicas=wanted[tp]) for tp in partitions
            ),
        )
        for topic, partitions in groupby(sorted(wanted), key=lambda tp: tp.topic)
    )
    answer = client.call_controller(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=admin.TIMEOUT_MS))
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(answer.error_code, answer.error_message or "")
    return {
        TopicPartition(topic.name, each.partition_index): KafkaError(each.error_code, each.error_message or "")
        for topic in answer.responses
        for each in topic.partitions
        if each.error_code != ErrorCode.NONE
    }


def under_way(
    client: ClusterClient, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """The reassignments in progress, of these partitions or of all."""
    topics = None
    if partitions is not None:
        topics = tuple(
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(tp.partition for tp in found))
            for topic, found in groupby(sorted(partitions), key=lambda tp: tp.topic)
        )
    answer = client.call_controller(ListPartitionReassignmentsRequest(topics=topics, timeout_ms=admin.TIMEOUT_MS))
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(answer.error_code, answer.error_message or "")
    return {
        TopicPartition(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions
    }


def throttle(client: ClusterClient, present: Plan, wanted: Plan, rate_bytes_per_sec: int) -> None:
    """Throttle a reassignment: set the rate on all brokers, and the throttled replicas on the topics."""
    for topic, replicas in throttled_replicas(present, wanted).items():
        listed = {LEADER_REPLICAS: replicas.leaders, FOLLOWER_REPLICAS: replicas.followers}
        admin.alter_configs(client, admin.TOPIC_RESOURCE, topic, listed)
    rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(rate_bytes_per_sec))
    for broker_id in admin.broker_ids(client):
        admin.alter_configs(client, admin.BROKER_RESOURCE, str(broker_id), rates)


def clear_throttle(client: ClusterClient, topics: Collection[str]) -> None:
    """Remove the throttle from these topics, and from all brokers that are alive."""
    for topic in sorted(topics):
        admin.alter_configs(client, admin.TOPIC_RESOURCE, topic, {}, delete=(LEADER_REPLICAS, FOLLOWER_REPLICAS))
    for broker_id in admin.broker_ids(client):
        admin.alter_configs(client, admin.BROKER_RESOURCE, str(broker_id), {}, delete=(LEADER_RATE, FOLLOWER_RATE))
