"""(shell) The administrative requests that tools need, one call each. Error codes are raised as KafkaError."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from raylog.client.cluster_client import ClusterClient
from raylog.core.config import ConfigSource, overriding_listener
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, TopicPartition, by_topic
from raylog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from raylog.protocol.messages.alter_client_quotas import EntityData as AlteredEntity
from raylog.protocol.messages.alter_client_quotas import RequestEntryData as AlteredQuotas
from raylog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from raylog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from raylog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_acls import DescribeAclsRequest
from raylog.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from raylog.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from raylog.protocol.messages.describe_quorum import ResponsePartitionData as QuorumPartition
from raylog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.quotas.client_quotas import QuotaEntity, entity
from raylog.quotas.filters import DEFAULT_ONLY, EXACT
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType

BROKER_DEFAULT = -1
TIMEOUT_MS = 30_000
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""
METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key's effective value, and where it was set."""

    name: str
    value: str | None
    source: int
    is_read_only: bool = False

    @property
    def is_own(self) -> bool:
        """Whether the value was set on the topic itself, not on its broker."""
        return self.source == ConfigSource.DYNAMIC_TOPIC_CONFIG


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the cluster, and the levels that the asked broker supports (KIP-584)."""

    feature: str
    supported_min: int
    supported_max: int
    finalized: int


def create_topic(
    client: ClusterClient,
    name: str,
    *,
    num_partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic. Raises KafkaError, such as TOPIC_ALREADY_EXISTS."""
    entries = tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items())
    topic = CreatableTopic(
        name=name, num_partitions=num_partitions, replication_factor=replication_factor, configs=entries
    )
    response = client.call_controller(CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS))
    result = response.topics[0]
    _check(result.error_code, result.error_message, f"topic {name!r}")


def delete_topic(client: ClusterClient, name: str) -> None:
    """Delete a topic. Raises KafkaError, such as UNKNOWN_TOPIC_OR_PARTITION."""
    # Versions up to 5 and from 6 on name the topic in different fields; the codec writes those of its version.
    state = DeleteTopicState(name=name, topic_id=ZERO_TOPIC_ID)
    request = DeleteTopicsRequest(topic_names=(name,), topics=(state,), timeout_ms=TIMEOUT_MS)
    result = client.call_controller(request).responses[0]
    _check(result.error_code, result.error_message, f"topic {name!r}")


def topic_configs(client: ClusterClient, name: str) -> list[ConfigEntry]:
    """Every key of the topic with its effective value. Raises KafkaError."""
    return describe_configs(client, TOPIC_RESOURCE, name)


def describe_configs(client: ClusterClient, resource_type: int, name: str) -> list[ConfigEntry]:
    """Every key with its effective value; for all brokers (an empty name), values that are set. Raises KafkaError."""
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,))
    of_one_broker = resource_type == BROKER_RESOURCE and name
    answer = client.call_broker(int(name), request) if of_one_broker else client.call_any(request)
    result = answer.results[0]
    _check(result.error_code, result.error_message, _resource(resource_type, name))
    return [ConfigEntry(entry.name, entry.value, entry.config_source, entry.read_only) for entry in result.configs]


def alter_configs(
    client: ClusterClient, resource_type: int, name: str, values: Mapping[str, str], *, delete: Collection[str] = ()
) -> None:
    """Set and delete keys of a topic, a broker or (with an empty name) all brokers. Raises KafkaError.

    The broker itself validates the keys of its listeners.
    """
    entries = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in values.items()]
    entries += [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in delete]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=tuple(entries))
    request = IncrementalAlterConfigsRequest(resources=(resource,))
    by_itself = resource_type == BROKER_RESOURCE and name and any(map(overriding_listener, (*values, *delete)))
    answer = client.call_broker(int(name), request) if by_itself else client.call_controller(request)
    result = answer.responses[0]
    _check(result.error_code, result.error_message, _resource(resource_type, name))


def broker_ids(client: ClusterClient) -> list[int]:
    """The ids of the brokers that are alive. Raises KafkaError."""
    return sorted(broker.node_id for broker in client.view([]).metadata.brokers)


def brokers(client: ClusterClient) -> list[DescribeClusterBroker]:
    """All registered brokers, by id. Brokers before Kafka 4.0 list only those that are alive."""
    answer = client.call_any(DescribeClusterRequest(include_fenced_brokers=True))
    _check(answer.error_code, answer.error_message, "the cluster")
    return sorted(answer.brokers, key=lambda broker: broker.broker_id)


def check_sees_all_topics(client: ClusterClient) -> None:
    """Check that no topic is hidden from this client, for callers that rely on a complete list of topics.

    Raises KafkaError: TOPIC_AUTHORIZATION_FAILED if there are hidden topics, CLUSTER_AUTHORIZATION_FAILED if the client
    is not authorized to list topics.
    """
    answer = client.call_any(ListConfigResourcesRequest(resource_types=(TOPIC_RESOURCE,)))
    _check(answer.error_code, None, "the list of topics")
    listed = {each.resource_name for each in answer.config_resources}
    hidden = listed - {topic.name for topic in client.view(None).metadata.topics}
    if hidden:
        message = f"not authorized to describe {len(hidden)} topic(s), such as {min(hidden)}"
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


def unregister_broker(client: ClusterClient, broker_id: int) -> None:
    """Unregister a broker. Raises KafkaError, such as BROKER_ID_NOT_REGISTERED."""
    answer = client.call_controller(UnregisterBrokerRequest(broker_id=broker_id))
    _check(answer.error_code, answer.error_message, f"broker {broker_id}")


def describe_features(client: ClusterClient) -> list[Feature]:
    """The features of one broker, and their finalized levels; 0 if a feature is not finalized. Raises KafkaError."""
    response = client.call_any(ApiVersionsRequest(client_software_name="raylog", client_software_version="1"))
    _check(response.error_code, None, "features")
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return [
        Feature(each.name, each.min_version, each.max_version, finalized.get(each.name, 0))
        for each in response.supported_features
    ]


def upgrade_feature(client: ClusterClient, feature: str, level: int, *, validate_only: bool = False) -> None:
    """Raise the finalized level, or only check that it could be. Raises KafkaError, as INVALID_UPDATE_VERSION."""
    update = FeatureUpdateKey(feature=feature, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=validate_only, timeout_ms=TIMEOUT_MS)
    response = client.call_controller(request)
    _check(response.error_code, response.error_message, feature)


def elect_leaders(
    client: ClusterClient, election_type: int, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, ErrorCode]:
    """The result for each partition; None elects leaders of all partitions that need it. Raises KafkaError."""
    topics = None
    if partitions is not None:
        topics = tuple(TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions))
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=TIMEOUT_MS)
    answer = client.call_controller(request)
    _check(answer.error_code, None, "the election")
    return {
        TopicPartition(topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


def describe_quorum(client: ClusterClient) -> QuorumPartition:
    """The replicas of the metadata log and their log end offsets. Raises KafkaError."""
    asked = RequestTopicData(topic_name=METADATA_TOPIC, partitions=(RequestPartitionData(partition_index=0),))
    answer = client.call_any(DescribeQuorumRequest(topics=(asked,)))
    _check(answer.error_code, answer.error_message, "the quorum")
    described: QuorumPartition = answer.topics[0].partitions[0]
    _check(described.error_code, described.error_message, "the quorum")
    return described


def log_dirs(
    client: ClusterClient, broker_id: int, partitions: Collection[TopicPartition] | None = None
) -> tuple[DescribeLogDirsResult, ...]:
    """The log directories of a broker, with all partitions (None) or some; any can have an error. Raises KafkaError."""
    wanted = None
    if partitions is not None:
        wanted = tuple(
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions)
        )
    response = client.call_broker(broker_id, DescribeLogDirsRequest(topics=wanted))
    _check(response.error_code, None, f"log directories of broker {broker_id}")
    results: tuple[DescribeLogDirsResult, ...] = response.results
    return results


def move_replicas(
    client: ClusterClient, broker_id: int, path: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Move replicas to another log directory of their broker, and return the result of each. Raises KafkaError."""
    topics = tuple(AlterReplicaLogDirTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(partitions))
    wanted = AlterReplicaLogDir(path=path, topics=topics)
    response = client.call_broker(broker_id, AlterReplicaLogDirsRequest(dirs=(wanted,)))
    return {
        TopicPartition(result.topic_name, partition.partition_index): partition.error_code
        for result in response.results
        for partition in result.partitions
    }


def describe_acls(client: ClusterClient, wanted: AclFilter) -> list[AclBinding]:
    """The ACL entries that match. Raises KafkaError, such as SECURITY_DISABLED."""
    answer = client.call_any(DescribeAclsRequest(**_filter(wanted)))
    _check(answer.error_code, answer.error_message, "access control lists")
    return [
        AclBinding(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            Operation(acl.operation),
            Permission(acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


def create_acls(client: ClusterClient, bindings: Collection[AclBinding]) -> None:
    """Add ACL entries; existing ones are not changed. Raises KafkaError if one is rejected; the others are added."""
    creations = tuple(
        AclCreation(
            resource_type=binding.resource_type,
            resource_name=binding.resource_name,
            resource_pattern_type=binding.pattern_type,
            principal=binding.principal,
            host=binding.host,
            operation=binding.operation,
            permission_type=binding.permission,
        )
        for binding in bindings
    )
    for result in client.call_controller(CreateAclsRequest(creations=creations)).results:
        _check(result.error_code, result.error_message, "access control lists")


def delete_acls(client: ClusterClient, filters: Collection[AclFilter]) -> list[AclBinding]:
    """Delete the entries that match one of the filters, and return them. Raises KafkaError."""
    request = DeleteAclsRequest(filters=tuple(DeleteAclsFilter(**_filter(wanted)) for wanted in filters))
    removed: dict[AclBinding, None] = {}
    for result in client.call_controller(request).filter_results:
        _check(result.error_code, result.error_message, "access control lists")
        for acl in result.matching_acls:
            _check(acl.error_code, acl.error_message, "access control lists")
            gone = AclBinding(
                ResourceType(acl.resource_type),
                acl.resource_name,
                PatternType(acl.pattern_type),
                acl.principal,
                acl.host,
                Operation(acl.operation),
                Permission(acl.permission_type),
            )
            removed[gone] = None
    return list(removed)


Quotas = dict[QuotaEntity, dict[str, float]]
"""Values by key, of each entity."""


def describe_quotas(client: ClusterClient, named: Mapping[str, str | None], *, strict: bool = False) -> Quotas:
    """The quotas of the entities that contain these names by type; the name None is the default entity.

    strict: only of the entity that contains nothing else. Raises KafkaError.
    """
    components = tuple(
        ComponentData(entity_type=kind, match_type=DEFAULT_ONLY if name is None else EXACT, match=name)
        for kind, name in named.items()
    )
    answer = client.call_any(DescribeClientQuotasRequest(components=components, strict=strict))
    _check(answer.error_code, answer.error_message, "quotas")
    return {
        entity({part.entity_type: part.entity_name for part in each.entity}): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries or ()
    }


def alter_quotas(client: ClusterClient, named: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
    """Set quotas of an entity, or remove those with the value None. Raises KafkaError.

    The same client's `describe_quotas` shows the change: both ask the same broker.
    """
    altered = AlteredQuotas(
        entity=tuple(AlteredEntity(entity_type=kind, entity_name=name) for kind, name in named.items()),
        ops=tuple(
            OpData(key=key, remove=True) if value is None else OpData(key=key, value=value)
            for key, value in changes.items()
        ),
    )
    for result in client.call_any(AlterClientQuotasRequest(entries=(altered,))).entries:
        _check(result.error_code, result.error_message, "quotas")


def _filter(wanted: AclFilter) -> dict[str, Any]:
    """The fields that DescribeAcls and DeleteAcls share."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _resource(resource_type: int, name: str) -> str:
    if resource_type == TOPIC_RESOURCE:
        return f"topic {name!r}"
    return f"broker {name}" if name else "all brokers"


def _check(code: ErrorCode, message: str | None, what: str) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(code, f"{what}: {message or code.sentence}")
