"""What tools need around reassignments: plans of the present, and throttles (KIP-73)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.reassignment_plan import Plan, throttled_replicas
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.metadata.node_roles import is_coordinator

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


def broker_ids(client: AdminClient) -> list[int]:
    """The ids of the brokers that are alive. Raises KafkaError."""
    return [node.node_id for node in client.describe_cluster().nodes]


def present_plan(client: AdminClient, topics: Iterable[str] | None) -> Plan:
    """The current replicas of these topics, or of all, without those of coordinators, which no assignment may name.

    Raises KafkaError for a topic that does not exist.
    """
    described = client.describe_topics(topics)
    brokers = {node.node_id for node in client.describe_cluster(include_fenced_brokers=True).nodes}
    return {
        TopicPartition(name, each.partition): tuple(
            node for node in each.replicas if node in brokers or not is_coordinator(node)
        )
        for name, topic in described.items()
        for each in topic.partitions
    }


def check_sees_all_topics(client: AdminClient) -> None:
    """Check that no topic is hidden from this client, for callers that rely on a complete list of topics.

    Raises KafkaError: TOPIC_AUTHORIZATION_FAILED if there are hidden topics, CLUSTER_AUTHORIZATION_FAILED if the client
    is not authorized to list topics.
    """
    listed = {resource.name for resource in client.list_config_resources([ConfigResourceType.TOPIC])}
    hidden = listed - {topic.name for topic in client.list_topics()}
    if hidden:
        message = f"not authorized to describe {len(hidden)} topic(s), such as {min(hidden)}"
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


def check_holds_nothing(client: AdminClient, broker_id: int) -> None:
    """Raises KafkaError: INVALID_REQUEST if it has replicas, TOPIC_AUTHORIZATION_FAILED if some topics are hidden."""
    check_sees_all_topics(client)
    held = [tp for tp, replicas in present_plan(client, None).items() if broker_id in replicas]
    if held:
        message = f"broker {broker_id} still has {len(held)} replica(s), such as one of {min(held)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def throttle(client: AdminClient, present: Plan, wanted: Plan, rate_bytes_per_sec: int) -> None:
    """Throttle a reassignment: set the rate on all brokers, and the throttled replicas on the topics."""
    for topic, replicas in throttled_replicas(present, wanted).items():
        listed = {LEADER_REPLICAS: replicas.leaders, FOLLOWER_REPLICAS: replicas.followers}
        client.incremental_alter_configs({ConfigResource(ConfigResourceType.TOPIC, topic): listed})
    rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(rate_bytes_per_sec))
    client.incremental_alter_configs(dict.fromkeys(_brokers(client), rates))


def clear_throttle(client: AdminClient, topics: Collection[str]) -> None:
    """Remove the throttle from these topics, and from all brokers that are alive."""
    for topic in sorted(topics):
        listed = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS))
        client.incremental_alter_configs({ConfigResource(ConfigResourceType.TOPIC, topic): listed})
    client.incremental_alter_configs(dict.fromkeys(_brokers(client), dict.fromkeys((LEADER_RATE, FOLLOWER_RATE))))


def _brokers(client: AdminClient) -> list[ConfigResource]:
    return [ConfigResource(ConfigResourceType.BROKER, str(broker_id)) for broker_id in broker_ids(client)]
