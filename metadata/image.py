"""The metadata of the cluster after the records replayed so far. Only `replay` changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, field, replace
from uuid import UUID

from raylog.core.errors import InvariantViolation
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition
from raylog.metadata.control_records import KRaftVersionChanged, VotersChanged
from raylog.metadata.features import KRAFT_FEATURE, check_feature_supported, level_of
from raylog.metadata.levels import FIRST_LEVEL, METADATA_FEATURE, check_supported
from raylog.metadata.node_roles import is_coordinator
from raylog.metadata.records import (
    AccessControlEntryAdded,
    AccessControlEntryRemoved,
    BrokerConfigsChanged,
    BrokerDirectoriesChanged,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ClientMetricsConfigsChanged,
    ClientQuotaRemoved,
    ClientQuotaSet,
    ControlledShutdownBegun,
    ControllerElected,
    DelegationTokenCreated,
    DelegationTokenExpiryChanged,
    DelegationTokenRemoved,
    FeatureLevelChanged,
    GroupConfigsChanged,
    IsrChanged,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    ReplicasAssignedToDirectory,
    ReplicasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from raylog.metadata.topic_names import metric_name
from raylog.metadata.voters import VoterSet
from raylog.quotas.client_quotas import ClientQuotas
from raylog.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from raylog.security.acl_index import AccessControlLists
from raylog.security.delegation_tokens import DelegationToken
from raylog.security.principal import Principal
from raylog.security.sasl.scram import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition: its replicas, ISR and leader.

    The ISR is empty if the only in-sync replica has lost its data: an unclean election must find a leader then.
    """

    partition: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int = 0
    """Number of changes of leader, ISR or replicas. A proposal that was made before the last change is refused."""
    adding: tuple[BrokerId, ...] = ()
    """Replicas that the current reassignment adds; cancelling it removes them again."""
    removing: tuple[BrokerId, ...] = ()
    """Replicas that the current reassignment removes when the others are in sync."""
    former: tuple[BrokerId, ...] = ()
    """Brokers that held a replica and no longer do: they may delete its directory."""
    emptied: tuple[BrokerId, ...] = ()
    """While there is no leader: replicas that were in sync last and have lost their records. An unclean election
    prefers the others, which may have some of them."""

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(slots=True)
class TopicImage:
    """One topic; `partitions[i]` is partition i, without gaps."""

    name: str
    topic_id: UUID
    configs: dict[str, str]
    partitions: list[PartitionImage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One broker: its last registration, and whether it is fenced."""

    registration: BrokerRegistered
    fenced: bool
    shutdown_offset: Offset | None = None
    """During controlled shutdown: the end offset of the records that moved its leaderships away. None otherwise."""

    @property
    def active(self) -> bool:
        """Whether it may lead, join an ISR and receive new replicas."""
        return not self.fenced and self.shutdown_offset is None

    def endpoint(self, listener_name: str) -> tuple[str, int] | None:
        """Host and port of the listener of this name, or None."""
        for name, host, port in self.registration.endpoints:
            if name == listener_name:
                return host, port
        return None


class MetadataImage:
    """Topics by name and by id, brokers, the next free producer id, access control lists, credentials, quotas and
    tokens."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[UUID, TopicImage] = {}
        self.names_by_metric: dict[str, str] = {}
        """Topic names by their names in metrics: Kafka's rule is that no two topics share one."""
        self.partition_count = 0
        """The number of partitions of all topics."""
        self.replica_counts: Counter[BrokerId] = Counter()
        """The number of replicas on each broker."""
        self.deleted_topics: dict[UUID, str] = {}
        """Names of all deleted topics by id: a broker deletes a directory only if its topic id is here."""
        self.brokers: dict[BrokerId, BrokerImage] = {}
        """All registered nodes that hold partitions: brokers and coordinators."""
        self.broker_configs: dict[BrokerId, dict[str, str]] = {}
        """Dynamic configuration by broker, without passwords; under NO_BROKER_ID the cluster-wide defaults."""
        self.broker_passwords: dict[BrokerId, dict[str, bytes]] = {}
        """The passwords among it, encrypted; only of brokers that have any."""
        self.next_producer_id = ProducerId(0)
        self.acls = AccessControlLists()
        self.scram_credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        """By user and mechanism."""
        self.client_quotas = ClientQuotas()
        self.delegation_tokens: dict[str, DelegationToken] = {}
        """By token id, in the order of their creation."""
        self.replica_directories: dict[BrokerId, dict[tuple[UUID, int], UUID]] = {}
        """The log directories of replicas, by broker, topic id and partition: those that brokers have reported."""
        self.group_configs: dict[str, dict[str, str]] = {}
        """Of the groups that have a configuration of their own."""
        self.client_metrics: dict[str, dict[str, str]] = {}
        """The configuration of each subscription, by name."""
        self.metadata_level = FIRST_LEVEL
        """The finalized level of `raylog.metadata`."""
        self.feature_levels: dict[str, int] = {}
        """The finalized levels of other features that were set; see `feature_level`."""
        self.voters: VoterSet | None = None
        """The voters of the quorum; None while they are those of the configuration."""

    def copy(self) -> MetadataImage:
        """A copy that is independent of later records."""
        copy = MetadataImage()
        copy.topics = {
            topic.name: TopicImage(topic.name, topic.topic_id, topic.configs, list(topic.partitions))
            for topic in self.topics.values()
        }
        copy.topics_by_id = {topic.topic_id: topic for topic in copy.topics.values()}
        copy.names_by_metric = dict(self.names_by_metric)
        copy.partition_count = self.partition_count
        copy.replica_counts = Counter(self.replica_counts)
        copy.deleted_topics = dict(self.deleted_topics)
        copy.brokers = dict(self.brokers)
        copy.broker_configs = dict(self.broker_configs)
        copy.broker_passwords = dict(self.broker_passwords)
        copy.next_producer_id = self.next_producer_id
        copy.acls = AccessControlLists(dict(self.acls.entries))
        copy.scram_credentials = dict(self.scram_credentials)
        copy.client_quotas = self.client_quotas.copy()
        copy.delegation_tokens = dict(self.delegation_tokens)
        copy.replica_directories = {broker_id: dict(held) for broker_id, held in self.replica_directories.items()}
        copy.group_configs = dict(self.group_configs)
        copy.client_metrics = dict(self.client_metrics)
        copy.metadata_level = self.metadata_level
        copy.feature_levels = dict(self.feature_levels)
        copy.voters = self.voters
        return copy

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it has none."""
        return level_of(name, self.feature_levels, self.metadata_level)

    @property
    def broker_ids(self) -> set[BrokerId]:
        """The registered brokers, among which coordinators do not count."""
        return {broker_id for broker_id in self.brokers if not is_coordinator(broker_id)}

    @property
    def alive(self) -> set[BrokerId]:
        """The brokers that are not fenced."""
        return {broker_id for broker_id, broker in self.brokers.items() if not broker.fenced}

    def is_alive(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    @property
    def active(self) -> set[BrokerId]:
        """The brokers that may lead: not fenced, and not in controlled shutdown."""
        return {broker_id for broker_id, broker in self.brokers.items() if broker.active}

    def is_active(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def partitions_on(self, broker_id: BrokerId) -> Iterator[tuple[TopicPartition, UUID, PartitionImage]]:
        """The partitions that have a replica on the broker."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if broker_id in partition.replicas:
                    yield TopicPartition(topic.name, partition.partition), topic.topic_id, partition

    def directory_of(self, broker_id: BrokerId, topic_id: UUID, partition: int) -> UUID | None:
        """The log directory in which the broker has its replica; None if it has not reported it."""
        return self.replica_directories.get(broker_id, {}).get((topic_id, partition))

    def is_directory_online(self, broker_id: BrokerId, topic_id: UUID, partition: int) -> bool:
        """Whether the log directory of this replica works, as far as is known."""
        directory_id = self.directory_of(broker_id, topic_id, partition)
        if directory_id is None:
            return True
        broker = self.brokers.get(broker_id)
        return broker is not None and directory_id in broker.registration.log_dirs

    def eligible(self, topic_id: UUID, partition: PartitionImage, brokers: Set[BrokerId]) -> Set[BrokerId]:
        """Those of `brokers` that may lead the partition if they are alive: the log directories of the others have
        failed."""
        if not self.replica_directories:
            return brokers
        failed = {
            replica
            for replica in partition.replicas
            if not self.is_directory_online(replica, topic_id, partition.partition)
        }
        return brokers - failed if failed else brokers

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(tp.topic)
        return (
            topic.partitions[tp.partition] if topic is not None and 0 <= tp.partition < len(topic.partitions) else None
        )

    def replay(self, record: MetadataRecord) -> None:
        """Apply `record`. Raises InvariantViolation for a record that contradicts those before it."""
        match record:
            case TopicCreated():
                if record.topic in self.topics:
                    raise InvariantViolation(f"topic {record.topic!r} created twice")
                topic = TopicImage(record.topic, record.topic_id, dict(record.configs))
                self.topics[record.topic] = self.topics_by_id[record.topic_id] = topic
                self.names_by_metric[metric_name(record.topic)] = record.topic
            case TopicDeleted():
                deleted = self._topic(record.topic_id)
                del self.topics[deleted.name], self.topics_by_id[record.topic_id]
                self.deleted_topics[record.topic_id] = deleted.name
                self.names_by_metric.pop(metric_name(deleted.name), None)
                self.partition_count -= len(deleted.partitions)
                for partition in deleted.partitions:
                    self._count_replicas(partition.replicas, -1)
                    self._forget_directories(record.topic_id, partition.partition, partition.replicas)
            case PartitionCreated():
                partitions = self._topic(record.topic_id).partitions
                if record.partition != len(partitions):
                    raise InvariantViolation(f"partition {record.partition} created after {len(partitions)} others")
                isr = record.replicas if record.isr is None else record.isr
                partitions.append(
                    PartitionImage(
                        record.partition,
                        record.replicas,
                        isr,
                        record.leader,
                        record.leader_epoch,
                        record.partition_epoch,
                        adding=record.adding,
                        removing=record.removing,
                        former=record.former,
                        emptied=record.emptied,
                    )
                )
                self.partition_count += 1
                self._count_replicas(record.replicas, 1)
            case TopicConfigsChanged():
                self._topic(record.topic_id).configs = dict(record.configs)
            case BrokerConfigsChanged():
                self.broker_configs[record.broker_id] = dict(record.configs)
                self.broker_passwords.pop(record.broker_id, None)
                if record.passwords:
                    self.broker_passwords[record.broker_id] = dict(record.passwords)
            case GroupConfigsChanged():
                self.group_configs.pop(record.group_id, None)
                if record.configs:
                    self.group_configs[record.group_id] = dict(record.configs)
            case ClientMetricsConfigsChanged():
                self.client_metrics.pop(record.name, None)
                if record.configs:
                    self.client_metrics[record.name] = dict(record.configs)
            case LeaderChanged():
                partitions = self._topic(record.topic_id).partitions
                before = partitions[record.partition]
                if record.leader_epoch <= before.leader_epoch:
                    raise InvariantViolation(f"leader epoch went from {before.leader_epoch} to {record.leader_epoch}")
                partitions[record.partition] = replace(
                    before,
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                    isr=before.isr if record.isr is None else record.isr,
                    partition_epoch=before.partition_epoch + 1,
                    emptied=before.emptied + record.emptied if record.leader == NO_BROKER_ID else (),
                )
            case IsrChanged():
                partitions = self._topic(record.topic_id).partitions
                before = partitions[record.partition]
                if not record.isr or not set(record.isr) <= set(before.replicas):
                    raise InvariantViolation(f"ISR {record.isr} is not a subset of the replicas {before.replicas}")
                epoch = before.partition_epoch + 1
                partitions[record.partition] = replace(before, isr=record.isr, partition_epoch=epoch)
            case ReplicasChanged():
                partitions = self._topic(record.topic_id).partitions
                before = partitions[record.partition]
                partitions[record.partition] = with_replicas(before, record)
                self._count_replicas(before.replicas, -1)
                self._count_replicas(record.replicas, 1)
                gone = set(before.replicas) - set(record.replicas)
                self._forget_directories(record.topic_id, record.partition, gone)
            case BrokerRegistered():
                before_it = self.brokers.get(record.broker_id)
                if before_it is not None and record.broker_epoch <= before_it.registration.broker_epoch:
                    raise InvariantViolation(
                        f"broker epoch {record.broker_epoch} of broker {record.broker_id} is not new"
                    )
                self.brokers[record.broker_id] = BrokerImage(record, fenced=True)
            case BrokerFenced() | BrokerUnfenced():
                broker = self._broker(record.broker_id, record.broker_epoch)
                self.brokers[record.broker_id] = replace(broker, fenced=isinstance(record, BrokerFenced))
            case BrokerDirectoriesChanged():
                broker = self._broker(record.broker_id, record.broker_epoch)
                self.brokers[record.broker_id] = replace(
                    broker, registration=with_directories(broker.registration, record.directory_ids)
                )
            case ReplicasAssignedToDirectory():
                held = self.replica_directories.setdefault(record.broker_id, {})
                for topic_id, number in record.partitions:
                    if record.broker_id not in self._topic(topic_id).partitions[number].replicas:
                        raise InvariantViolation(f"broker {record.broker_id} has no replica of {topic_id}-{number}")
                    held[topic_id, number] = record.directory_id
            case BrokerUnregistered():
                self._broker(record.broker_id, record.broker_epoch)
                del self.brokers[record.broker_id]
            case ControlledShutdownBegun():
                broker = self._broker(record.broker_id, record.broker_epoch)
                self.brokers[record.broker_id] = replace(broker, shutdown_offset=record.end_offset)
            case ProducerIdsAllocated():
                if record.next_producer_id <= self.next_producer_id:
                    raise InvariantViolation("the block of producer ids overlaps allocated ones")
                self.next_producer_id = record.next_producer_id
            case AccessControlEntryAdded():
                if record.acl_id in self.acls.entries:
                    raise InvariantViolation(f"access control entry {record.acl_id} added twice")
                self.acls.add(record.acl_id, _binding_of(record))
            case AccessControlEntryRemoved():
                if record.acl_id not in self.acls.entries:
                    raise InvariantViolation(f"access control entry {record.acl_id} does not exist")
                self.acls.remove(record.acl_id)
            case ScramCredentialSet():
                self.scram_credentials[record.user, ScramMechanism(record.mechanism)] = ScramCredential(
                    record.salt, record.stored_key, record.server_key, record.iterations
                )
            case ScramCredentialRemoved():
                if self.scram_credentials.pop((record.user, ScramMechanism(record.mechanism)), None) is None:
                    raise InvariantViolation(f"user {record.user!r} has no SCRAM credential to remove")
            case ClientQuotaSet():
                self.client_quotas.set(record.entity, record.key, record.value)
            case ClientQuotaRemoved():
                if record.key not in self.client_quotas.entries.get(record.entity, {}):
                    raise InvariantViolation(f"{record.entity} has no quota {record.key!r} to remove")
                self.client_quotas.remove(record.entity, record.key)
            case DelegationTokenCreated():
                if record.token_id in self.delegation_tokens:
                    raise InvariantViolation(f"delegation token {record.token_id!r} created twice")
                self.delegation_tokens[record.token_id] = _token_of(record)
            case DelegationTokenExpiryChanged():
                token = self._token(record.token_id)
                self.delegation_tokens[record.token_id] = replace(token, expiry_timestamp=record.expiry_timestamp)
            case DelegationTokenRemoved():
                self._token(record.token_id)
                del self.delegation_tokens[record.token_id]
            case FeatureLevelChanged():
                self._set_feature_level(record.feature, record.level)
            case KRaftVersionChanged():
                self._set_feature_level(KRAFT_FEATURE, record.level)
            case VotersChanged():
                self.voters = record.voters
            case ControllerElected():
                pass  # the quorum keeps track of its leader

    def _set_feature_level(self, name: str, level: int) -> None:
        if name != METADATA_FEATURE:
            check_feature_supported(name, level)
            self.feature_levels[name] = level
            return
        if level <= self.metadata_level:
            message = f"{name} set to level {level}, but it is at level {self.metadata_level}"
            raise InvariantViolation(message)
        check_supported(level)
        self.metadata_level = level

    def _count_replicas(self, replicas: tuple[BrokerId, ...], change: int) -> None:
        for replica in replicas:
            self.replica_counts[replica] += change

    def _forget_directories(self, topic_id: UUID, partition: int, brokers: Collection[BrokerId]) -> None:
        for broker_id in brokers:
            held = self.replica_directories.get(broker_id)
            if held is not None:
                held.pop((topic_id, partition), None)
                if not held:
                    del self.replica_directories[broker_id]

    def _broker(self, broker_id: BrokerId, broker_epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.registration.broker_epoch != broker_epoch:
            raise InvariantViolation(f"broker {broker_id} with epoch {broker_epoch} is not registered")
        return broker

    def _token(self, token_id: str) -> DelegationToken:
        token = self.delegation_tokens.get(token_id)
        if token is None:
            raise InvariantViolation(f"delegation token {token_id!r} does not exist")
        return token

    def _topic(self, topic_id: UUID) -> TopicImage:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise InvariantViolation(f"topic id {topic_id} does not exist")
        return topic


def acl_added(acl_id: UUID, binding: AclBinding) -> AccessControlEntryAdded:
    """The record that adds `binding` under the id `acl_id`."""
    return AccessControlEntryAdded(
        acl_id,
        binding.resource_type,
        binding.resource_name,
        binding.pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission,
    )


def _binding_of(record: AccessControlEntryAdded) -> AclBinding:
    return AclBinding(
        ResourceType(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        Operation(record.operation),
        Permission(record.permission_type),
    )


def token_created(token: DelegationToken) -> DelegationTokenCreated:
    """The record that adds `token`."""
    return DelegationTokenCreated(
        token.token_id,
        token.owner,
        token.requester,
        token.renewers,
        token.issue_timestamp,
        token.max_timestamp,
        token.expiry_timestamp,
    )


def _token_of(record: DelegationTokenCreated) -> DelegationToken:
    return DelegationToken(
        record.token_id,
        Principal(*record.owner),
        Principal(*record.requester),
        tuple(Principal(*renewer) for renewer in record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiry_timestamp,
    )


def with_directories(registration: BrokerRegistered, directory_ids: tuple[UUID, ...]) -> BrokerRegistered:
    """The registration with these log directories instead of those it had."""
    if len(directory_ids) == 1:
        return replace(registration, directory_id=directory_ids[0], directory_ids=())
    return replace(registration, directory_id=None, directory_ids=directory_ids)


def with_replicas(before: PartitionImage, record: ReplicasChanged) -> PartitionImage:
    """The partition after the record. Raises InvariantViolation for a record that contradicts it."""
    replicas = set(record.replicas)
    if not set(record.isr) <= replicas or (before.isr and not record.isr):
        raise InvariantViolation(f"ISR {record.isr} is not a subset of the replicas {record.replicas}")
    gone = set(before.replicas) - replicas
    must_be_new = record.leader != before.leader or bool(gone)
    if record.leader_epoch < before.leader_epoch + must_be_new:
        raise InvariantViolation(f"leader epoch went from {before.leader_epoch} to {record.leader_epoch}")
    return replace(
        before,
        replicas=record.replicas,
        isr=record.isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=before.partition_epoch + 1,
        adding=record.adding,
        removing=record.removing,
        emptied=before.emptied if record.leader == NO_BROKER_ID else (),
        former=tuple(sorted((gone | set(before.former)) - replicas)),
    )
