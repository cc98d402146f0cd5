"""Commands about brokers: registration, fencing, controlled shutdown, and allocation of producer ids."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

from raylog.controller.coordinators import without_coordinator
from raylog.controller.elections import (
    TopicRule,
    never,
    on_created_anew,
    on_directory_missing,
    on_fenced,
    on_replicas_failed,
    on_shutdown_begun,
    on_unfenced,
)
from raylog.controller.features import check_registration
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, Offset, ProducerId, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.image import BrokerImage, MetadataImage, with_directories
from raylog.metadata.levels import DIRECTORIES_LEVEL
from raylog.metadata.records import (
    BrokerDirectoriesChanged,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ControlledShutdownBegun,
    MetadataRecord,
    ProducerIdsAllocated,
    ReplicasAssignedToDirectory,
)

PRODUCER_ID_BLOCK = 1000
"""Ids per allocation, as in Kafka. Ids that a broker has not used when it stops are never used."""


def register_broker(
    image: MetadataImage,
    broker_id: BrokerId,
    *,
    incarnation_id: UUID,
    endpoints: tuple[tuple[str, str, int], ...],
    rack: str | None,
    directory_ids: Sequence[UUID],
    features: tuple[tuple[str, int, int], ...] = (),
    broker_epoch: int,
    predecessor_alive: bool,
    allows_unclean: TopicRule = never,
) -> Outcome[int, MetadataRecord]:
    """Register a new incarnation, and return its epoch. It stays fenced until it has caught up with the metadata log.

    `broker_epoch` is the offset of the first record. An incarnation may register twice if the response was lost.
    `directory_ids` are the log directories that it could open. If one is missing that it had before, its replicas there
    leave the ISR in the same commit; partitions without another in-sync replica have no leader, until the directory
    returns or an unclean election is held.

    Raises KafkaError: DUPLICATE_BROKER_REGISTRATION while another incarnation of this id is alive; UNSUPPORTED_VERSION
    for a broker that does not support the finalized metadata level, or has several directories below level 4.
    """
    before = image.brokers.get(broker_id)
    if before is not None and before.registration.incarnation_id == incarnation_id:
        return Outcome(before.registration.broker_epoch)
    check_registration(image, features)
    if predecessor_alive:
        message = f"Another process is registered as broker {broker_id} and is alive."
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    if len(directory_ids) > 1 and image.metadata_level < DIRECTORIES_LEVEL:
        message = f"Broker {broker_id} has several log directories, which needs metadata level {DIRECTORIES_LEVEL}."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    registered = with_directories(
        BrokerRegistered(broker_id, incarnation_id, broker_epoch, endpoints, rack, features=features),
        tuple(directory_ids),
    )
    is_missing = before is not None and not set(before.registration.log_dirs) <= set(directory_ids)
    changes = (on_directory_missing if is_missing else on_fenced)(image, broker_id, allows_unclean)
    return Outcome(broker_epoch, [registered, *changes])


def fence_broker(
    image: MetadataImage, broker_id: BrokerId, allows_unclean: TopicRule = never
) -> Outcome[None, MetadataRecord]:
    """Fence the broker. Its partitions elect new leaders; those without another in-sync replica have no leader."""
    broker = image.brokers[broker_id]
    if broker.fenced:
        return Outcome(None)
    fenced = BrokerFenced(broker_id, broker.registration.broker_epoch)
    return Outcome(None, [fenced, *on_fenced(image, broker_id, allows_unclean)])


def unfence_broker(
    image: MetadataImage, broker_id: BrokerId, allows_unclean: TopicRule = never
) -> Outcome[None, MetadataRecord]:
    """Unfence a broker that has caught up. Partitions without a leader elect it, under a new leader epoch.

    By the new epoch a client notices that records it has read were lost in a power failure: the lost records and those
    written in their place differ in epoch (KIP-101, KIP-320).
    """
    broker = image.brokers[broker_id]
    if not broker.fenced:
        return Outcome(None)
    unfenced = BrokerUnfenced(broker_id, broker.registration.broker_epoch)
    return Outcome(None, [unfenced, *on_unfenced(image, broker_id, allows_unclean)])


def fail_directories(
    image: MetadataImage, broker_id: BrokerId, failed: Collection[UUID], allows_unclean: TopicRule = never
) -> Outcome[None, MetadataRecord]:
    """Log directories of the broker have failed: its replicas there leave the ISR, and others are elected (KIP-858)."""
    registration = image.brokers[broker_id].registration
    left = tuple(directory_id for directory_id in registration.log_dirs if directory_id not in failed)
    if left == registration.log_dirs:
        return Outcome(None)
    changed = BrokerDirectoriesChanged(broker_id, registration.broker_epoch, left)
    held = image.replica_directories.get(broker_id, {})
    replicas = [replica for replica, directory_id in held.items() if directory_id in failed]
    return Outcome(None, [changed, *on_replicas_failed(image, broker_id, replicas, allows_unclean)])


def assign_replicas(
    image: MetadataImage,
    broker_id: BrokerId,
    wanted: Collection[tuple[UUID, UUID, int]],
    allows_unclean: TopicRule = never,
) -> Outcome[dict[tuple[UUID, UUID, int], ErrorCode], MetadataRecord]:
    """The broker has its replicas in these log directories (KIP-858). `wanted` are directory id, topic id and
    partition; the results are UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER for a partition
    of which it has no replica.

    A replica whose former directory has failed was created anew, so that it has lost its records. One that is assigned
    to a directory that has failed meanwhile leaves the ISR.
    """
    results = {each: _check_replica(image, broker_id, *each[1:]) for each in wanted}
    changed: dict[UUID, list[tuple[UUID, int]]] = {}
    for directory_id, topic_id, number in (each for each, code in results.items() if code == ErrorCode.NONE):
        if image.directory_of(broker_id, topic_id, number) != directory_id:
            changed.setdefault(directory_id, []).append((topic_id, number))
    records: list[MetadataRecord] = []
    online = image.brokers[broker_id].registration.log_dirs
    for directory_id, replicas in changed.items():
        if directory_id in online:
            records += _created_anew(image, broker_id, replicas, allows_unclean)
        records.append(ReplicasAssignedToDirectory(broker_id, directory_id, tuple(replicas)))
        if directory_id not in online:
            records += on_replicas_failed(image, broker_id, replicas, allows_unclean)
    return Outcome(results, records)


def _check_replica(image: MetadataImage, broker_id: BrokerId, topic_id: UUID, partition: int) -> ErrorCode:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    has_replica = broker_id in topic.partitions[partition].replicas
    return ErrorCode.NONE if has_replica else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _created_anew(
    image: MetadataImage, broker_id: BrokerId, replicas: Collection[tuple[UUID, int]], allows_unclean: TopicRule
) -> Iterator[MetadataRecord]:
    for topic_id, number in replicas:
        if not image.is_directory_online(broker_id, topic_id, number):
            tp = TopicPartition(image.topics_by_id[topic_id].name, number)
            change = on_created_anew(image, broker_id, tp, allows_unclean)
            if change is not None:
                yield change


def unregister_broker(image: MetadataImage, broker_id: BrokerId) -> Outcome[None, MetadataRecord]:
    """Remove a fenced broker from the cluster. It lost its leaderships when it was fenced.

    A coordinator loses its replicas with it. Raises KafkaError: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST for one that
    is alive, and for a coordinator that has the only in-sync replica of a partition.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if not broker.fenced:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is alive: stop it before unregistering it.")
    unregistered = BrokerUnregistered(broker_id, broker.registration.broker_epoch)
    return Outcome(None, [*without_coordinator(image, broker_id), unregistered])


def shut_down_broker(
    image: MetadataImage, broker_id: BrokerId, *, next_offset: Offset, replicated_upto: Offset
) -> Outcome[bool, MetadataRecord]:
    """Whether a broker in controlled shutdown may stop now (KIP-631).

    The first call removes it from every ISR that has another member, and moves its leaderships. It may stop when all
    active brokers, and it itself, have replayed these records; they have replayed everything below `replicated_upto`.
    `next_offset` is the offset of the next record. Partitions of which it is the only in-sync replica stay with it
    until its connection breaks and it is fenced.
    """
    broker = image.brokers[broker_id]
    if broker.fenced:
        return Outcome(True)
    if broker.shutdown_offset is None:
        taken = list(on_shutdown_begun(image, broker_id))
        end_offset = Offset(next_offset + 1 + len(taken))
        return Outcome(
            False, [ControlledShutdownBegun(broker_id, broker.registration.broker_epoch, end_offset), *taken]
        )
    return Outcome(replicated_upto >= broker.shutdown_offset)


def allocate_producer_ids(
    image: MetadataImage, broker_id: BrokerId, *, broker_epoch: int
) -> Outcome[range, MetadataRecord]:
    """A block of producer ids that was never allocated before. Raises KafkaError as `registered_broker`."""
    registered_broker(image, broker_id, broker_epoch=broker_epoch)
    first = image.next_producer_id
    block = range(first, first + PRODUCER_ID_BLOCK)
    return Outcome(block, [ProducerIdsAllocated(ProducerId(block.stop))])


def registered_broker(image: MetadataImage, broker_id: BrokerId, *, broker_epoch: int) -> BrokerImage:
    """Raises KafkaError(BROKER_ID_NOT_REGISTERED), or STALE_BROKER_EPOCH for an incarnation that was replaced."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.registration.broker_epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    return broker
