"""The cluster as a whole: its brokers, features, quorum and log directories. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from raylog.client.admin.calls import (
    ANY_BROKER,
    CONTROLLER,
    Answer,
    Broker,
    Call,
    Steps,
    alive_nodes,
    ask,
    distinct,
    named,
    partitions_in,
    refused_as_a_whole,
)
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition, by_topic
from raylog.protocol.messages.add_raft_voter import AddRaftVoterRequest
from raylog.protocol.messages.add_raft_voter import Listener as VoterListener
from raylog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from raylog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.security.acl import Operation
from raylog.transport.client_connection import CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION

METADATA_TOPIC: Final = "__cluster_metadata"
NOT_ASKED: Final = -(1 << 31)
"""The authorized operations of a response in which they were not asked for."""
_API_VERSIONS: Final = ApiVersionsRequest(
    client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
)


class ClusterNode(NamedTuple):
    """A registered broker. One that is fenced serves no clients now."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class ClusterDescription(NamedTuple):
    """`controller` is the broker that takes requests for the controller."""

    cluster_id: str
    controller: int | None
    nodes: tuple[ClusterNode, ...]
    authorized_operations: frozenset[Operation] | None


class Feature(NamedTuple):
    """A feature of the cluster, and the levels that the asked broker supports (KIP-584)."""

    feature: str
    supported_min: int
    supported_max: int
    finalized: int
    """0: not finalized."""


class ApiVersionRange(NamedTuple):
    """The versions of a request that a broker serves, both inclusive."""

    api_key: int
    min_version: int
    max_version: int


class UpgradeType(IntEnum):
    """Whether the level of a feature may be lowered, and records be lost by that."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a feature is to have."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class QuorumReplica(NamedTuple):
    """A replica of the metadata log. Times are wall clock in milliseconds; None if they are not known."""

    replica_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None


class RaftVoterEndpoint(NamedTuple):
    """A listener of a controller."""

    name: str
    host: str
    port: int


class QuorumDescription(NamedTuple):
    """The quorum of the controllers."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: dict[int, tuple[RaftVoterEndpoint, ...]]
    """The listeners of voters by their ids, as far as the cluster knows them."""


class ReplicaInfo(NamedTuple):
    """A replica in a log directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool
    """Whether it takes the place of another replica, once it has caught up with that."""


class LogDirDescription(NamedTuple):
    """A log directory of a broker; -1 where a size is not known."""

    error: KafkaError | None
    replicas: dict[tuple[TopicPartition, bool], ReplicaInfo]
    """By partition, and whether the replica is a future one."""
    total_bytes: int
    usable_bytes: int


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on a broker."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


Replica = TypeVar("Replica", bound=tuple[str, int, int])
"""A TopicPartitionReplica, or a tuple like it."""


def describe_cluster(
    *, include_fenced_brokers: bool = False, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[ClusterDescription]:
    """The brokers that are alive, or all that are registered. Brokers before Kafka 4.0 list only the former."""
    request = DescribeClusterRequest(
        include_fenced_brokers=include_fenced_brokers,
        include_cluster_authorized_operations=include_authorized_operations,
    )

    def read(response: Any) -> ClusterDescription:
        nodes = tuple(
            ClusterNode(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
            for each in sorted(response.brokers, key=lambda each: each.broker_id)
        )
        controller = None if response.controller_id < 0 else response.controller_id
        operations = operations_in(response.cluster_authorized_operations)
        return ClusterDescription(response.cluster_id, controller, nodes, operations)

    return (yield from ask(ANY_BROKER, "the cluster", lambda _: request, read))


def describe_coordinators(*, timeout: float | None = None) -> Steps[tuple[ClusterNode, ...]]:
    """The coordinators of a raylog cluster that are nodes of their own, and alive: they are in Metadata only.

    A broker that registers between the two requests is not taken for one.
    """
    alive = yield from alive_nodes()
    brokers = yield from describe_cluster(include_fenced_brokers=True)
    known = {node.node_id for node in brokers.nodes}
    return tuple(
        ClusterNode(each.node_id, each.host, each.port, each.rack) for each in alive if each.node_id not in known
    )


def unregister_broker(broker_id: int, *, timeout: float | None = None) -> Steps[None]:
    """Forget a broker that is gone for good."""
    request = UnregisterBrokerRequest(broker_id=broker_id)
    yield from ask(CONTROLLER, f"broker {broker_id}", lambda _: request, lambda _: None)


def describe_api_versions(
    broker_ids: Iterable[int], *, timeout: float | None = None
) -> Steps[dict[int, list[ApiVersionRange]]]:
    """The requests that each of these brokers serves, in the order of their keys (KIP-35)."""
    name = named("broker")

    def read(response: Any, items: Sequence[int]) -> Iterator[Answer]:
        yield from refused_as_a_whole(response, items)
        served = [ApiVersionRange(each.api_key, each.min_version, each.max_version) for each in response.api_keys]
        yield Answer(items[0], sorted(served))

    wanted = distinct(broker_ids, name)
    found = yield Call({each: Broker(each) for each in wanted}, name, lambda *_: _API_VERSIONS, read)
    return found.checked()


def describe_features(*, timeout: float | None = None) -> Steps[list[Feature]]:
    """The features that one broker supports, and their finalized levels."""

    def read(response: Any) -> list[Feature]:
        finalized = {each.name: each.max_version_level for each in response.finalized_features}
        return [
            Feature(each.name, each.min_version, each.max_version, finalized.get(each.name, 0))
            for each in response.supported_features
        ]

    return (yield from ask(ANY_BROKER, "features", lambda _: _API_VERSIONS, read))


def update_features(
    updates: Mapping[str, int | FeatureUpdate], *, validate_only: bool = False, timeout: float | None = None
) -> Steps[None]:
    """Finalize levels of features, or only check that they could be. All of them or none."""
    wanted = {name: FeatureUpdate(each) if isinstance(each, int) else each for name, each in updates.items()}
    keys = tuple(
        FeatureUpdateKey(
            feature=name,
            max_version_level=each.max_version_level,
            allow_downgrade=each.upgrade_type != UpgradeType.UPGRADE,
            upgrade_type=each.upgrade_type,
        )
        for name, each in wanted.items()
    )

    def request(left_ms: int) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only, timeout_ms=left_ms)

    def read(response: Any) -> None:
        for each in response.results:
            if each.error_code:
                text = each.error_message or each.error_code.sentence
                raise KafkaError(each.error_code, f"{each.feature}: {text}")

    response = yield from ask(CONTROLLER, ", ".join(wanted), request, lambda response: response)
    read(response)


def describe_metadata_quorum(*, timeout: float | None = None) -> Steps[QuorumDescription]:
    """The replicas of the metadata log and their log end offsets."""
    asked = RequestTopicData(topic_name=METADATA_TOPIC, partitions=(RequestPartitionData(partition_index=0),))
    request = DescribeQuorumRequest(topics=(asked,))
    response = yield from ask(ANY_BROKER, "the quorum", lambda _: request, lambda response: response)
    partition = response.topics[0].partitions[0]
    if partition.error_code:
        text = partition.error_message or partition.error_code.sentence
        raise KafkaError(partition.error_code, f"the quorum: {text}")
    return QuorumDescription(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(map(_quorum_replica, partition.current_voters)),
        tuple(map(_quorum_replica, partition.observers)),
        {
            node.node_id: tuple(RaftVoterEndpoint(each.name, each.host, each.port) for each in node.listeners)
            for node in response.nodes
        },
    )


def add_raft_voter(
    voter_id: int,
    voter_directory_id: UUID,
    endpoints: Iterable[RaftVoterEndpoint | tuple[str, str, int]],
    *,
    cluster_id: str | None = None,
    timeout: float | None = None,
) -> Steps[None]:
    """Add a controller, which runs as an observer, to the voters of the quorum (KIP-853).

    It must have caught up with the metadata log; REQUEST_TIMED_OUT says that it may be possible later. Other errors:
    UNSUPPORTED_VERSION while `kraft.version` is 0, and DUPLICATE_VOTER.
    """
    listeners = tuple(VoterListener(name=name, host=host, port=port) for name, host, port in endpoints)

    def request(left_ms: int) -> AddRaftVoterRequest:
        return AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=left_ms,
            voter_id=voter_id,
            voter_directory_id=voter_directory_id,
            listeners=listeners,
        )

    yield from ask(CONTROLLER, f"controller {voter_id}", request, lambda _: None)


def remove_raft_voter(
    voter_id: int, voter_directory_id: UUID, *, cluster_id: str | None = None, timeout: float | None = None
) -> Steps[None]:
    """Remove a controller from the voters of the quorum (KIP-853); it goes on as an observer.

    VOTER_NOT_FOUND also for another directory id than the voter's.
    """
    request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=voter_directory_id)
    yield from ask(CONTROLLER, f"controller {voter_id}", lambda _: request, lambda _: None)


def describe_log_dirs(
    broker_ids: Iterable[int] | int,
    partitions: Iterable[tuple[str, int]] | None = None,
    *,
    timeout: float | None = None,
) -> Steps[dict[int, dict[str, LogDirDescription]]]:
    """The log directories of brokers by path, with all their replicas or those of some partitions."""
    wanted = distinct([broker_ids] if isinstance(broker_ids, int) else broker_ids, named("broker"))
    topics = None
    if partitions is not None:
        topics = tuple(
            DescribableLogDirTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions_in(partitions))
        )
    request = DescribeLogDirsRequest(topics=topics)

    def read(response: Any, items: Sequence[int]) -> Iterator[Answer]:
        yield from refused_as_a_whole(response, items)
        yield Answer(items[0], {each.log_dir: _log_dir(each) for each in response.results})

    routes = {broker_id: Broker(broker_id) for broker_id in wanted}
    found = yield Call(routes, lambda item: f"log directories of broker {item}", lambda *_: request, read)
    return found.checked()


def alter_replica_log_dirs(
    moves: Mapping[Replica, str], *, timeout: float | None = None
) -> Steps[dict[TopicPartitionReplica, None]]:
    """Move replicas to other log directories of their brokers, by path."""
    wanted = {TopicPartitionReplica(*each): path for each, path in moves.items()}

    def request(items: Sequence[TopicPartitionReplica], _: int) -> AlterReplicaLogDirsRequest:
        dirs = []
        for path in dict.fromkeys(wanted[item] for item in items):
            moved = [TopicPartition(item.topic, item.partition) for item in items if wanted[item] == path]
            topics = tuple(AlterReplicaLogDirTopic(name=topic, partitions=found) for topic, found in by_topic(moved))
            dirs.append(AlterReplicaLogDir(path=path, topics=topics))
        return AlterReplicaLogDirsRequest(dirs=tuple(dirs))

    def read(response: Any, items: Sequence[TopicPartitionReplica]) -> Iterator[Answer]:
        for topic in response.results:
            for each in topic.partitions:
                replica = TopicPartitionReplica(topic.topic_name, each.partition_index, items[0].broker_id)
                yield Answer(replica, None, each.error_code)

    found = yield Call({item: Broker(item.broker_id) for item in wanted}, str, request, read)
    return found.checked()


def operations_in(bits: int) -> frozenset[Operation] | None:
    """The operations of a response, whose numbers are the bits that are set; None if they were not asked for."""
    if bits == NOT_ASKED:
        return None
    return frozenset(each for each in Operation if each is not Operation.UNKNOWN and bits >> each & 1)


def _quorum_replica(replica: Any) -> QuorumReplica:
    return QuorumReplica(
        replica.replica_id,
        replica.replica_directory_id,
        replica.log_end_offset,
        None if replica.last_fetch_timestamp < 0 else replica.last_fetch_timestamp,
        None if replica.last_caught_up_timestamp < 0 else replica.last_caught_up_timestamp,
    )


def _log_dir(found: Any) -> LogDirDescription:
    replicas = {
        (TopicPartition(topic.name, each.partition_index), each.is_future_key): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in found.topics
        for each in topic.partitions
    }
    error = KafkaError(found.error_code, f"{found.log_dir}: {found.error_code.sentence}") if found.error_code else None
    return LogDirDescription(error, replicas, found.total_bytes, found.usable_bytes)
