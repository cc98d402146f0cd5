"""(shell) The few administrative requests that tools need, each as one call. Every refusal is a KafkaError."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from raylog.client.cluster_client import ClusterClient
from raylog.core.config import ConfigSource
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)

BROKER_DEFAULT = -1
TIMEOUT_MS = 30_000
TOPIC_RESOURCE = 2


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One value in force. `is_own` says that it was set on the topic, and does not come from the broker."""

    name: str
    value: str | None
    is_own: bool


def create_topic(
    client: ClusterClient,
    name: str,
    *,
    num_partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Raises KafkaError, TOPIC_ALREADY_EXISTS among them."""
    entries = tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items())
    topic = CreatableTopic(
        name=name, num_partitions=num_partitions, replication_factor=replication_factor, configs=entries
    )
    response = client.call_controller(CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS))
    result = response.topics[0]
    _check(result.error_code, result.error_message, f"topic {name!r}")


def delete_topic(client: ClusterClient, name: str) -> None:
    """Raises KafkaError, UNKNOWN_TOPIC_OR_PARTITION among them."""
    # The same topic in the words of versions up to 5 and from 6 on; the codec writes what its version has.
    state = DeleteTopicState(name=name, topic_id=ZERO_TOPIC_ID)
    request = DeleteTopicsRequest(topic_names=(name,), topics=(state,), timeout_ms=TIMEOUT_MS)
    result = client.call_controller(request).responses[0]
    _check(result.error_code, result.error_message, f"topic {name!r}")


def topic_configs(client: ClusterClient, name: str) -> list[ConfigEntry]:
    """Every key of the topic with the value in force. Raises KafkaError."""
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
    result = client.call_any(DescribeConfigsRequest(resources=(resource,))).results[0]
    _check(result.error_code, result.error_message, f"topic {name!r}")
    return [
        ConfigEntry(entry.name, entry.value, entry.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG)
        for entry in result.configs
    ]


def broker_ids(client: ClusterClient) -> list[int]:
    """Those that are alive. Raises KafkaError."""
    return sorted(broker.node_id for broker in client.view([]).metadata.brokers)


def log_dirs(
    client: ClusterClient, broker_id: int, partitions: Collection[TopicPartition] | None = None
) -> tuple[DescribeLogDirsResult, ...]:
    """What lies in the log directories of a broker, None: everything; each may have an error. Raises KafkaError."""
    wanted = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        wanted = tuple(
            DescribableLogDirTopic(topic=topic, partitions=tuple(numbers)) for topic, numbers in by_topic.items()
        )
    response = client.call_broker(broker_id, DescribeLogDirsRequest(topics=wanted))
    _check(response.error_code, None, f"log directories of broker {broker_id}")
    results: tuple[DescribeLogDirsResult, ...] = response.results
    return results


def _check(code: ErrorCode, message: str | None, what: str) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(code, f"{what}: {message or code.sentence}")
