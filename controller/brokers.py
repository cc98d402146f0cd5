"""Commands about brokers: registration, fencing, controlled shutdown, and allocation of producer ids."""

from __future__ import annotations

from uuid import UUID

from raylog.controller.elections import TopicRule, never, on_data_lost, on_fenced, on_shutdown_begun, on_unfenced
from raylog.controller.features import check_registration
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, Offset, ProducerId
from raylog.core.outcome import Outcome
from raylog.metadata.image import BrokerImage, MetadataImage
from raylog.metadata.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ControlledShutdownBegun,
    MetadataRecord,
    ProducerIdsAllocated,
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
    directory_id: UUID | None,
    features: tuple[tuple[str, int, int], ...] = (),
    broker_epoch: int,
    predecessor_alive: bool,
    allows_unclean: TopicRule = never,
) -> Outcome[int, MetadataRecord]:
    """Register a new incarnation, and return its epoch. It stays fenced until it has caught up with the metadata log.

    `broker_epoch` is the offset of the first record. An incarnation may register twice if the response was lost. A
    broker that registers with another directory id has lost its data.

    Raises KafkaError: DUPLICATE_BROKER_REGISTRATION while another incarnation of this id is alive; UNSUPPORTED_VERSION
    for a broker that does not support the finalized metadata level.
    """
    before = image.brokers.get(broker_id)
    if before is not None and before.registration.incarnation_id == incarnation_id:
        return Outcome(before.registration.broker_epoch)
    check_registration(image, features)
    if predecessor_alive:
        message = f"Another process is registered as broker {broker_id} and is alive."
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    registered = BrokerRegistered(broker_id, incarnation_id, broker_epoch, endpoints, rack, directory_id, features)
    if before is not None and before.registration.directory_id not in (None, directory_id):
        return Outcome(broker_epoch, [registered, *on_data_lost(image, broker_id, allows_unclean)])
    return Outcome(broker_epoch, [registered, *on_fenced(image, broker_id, allows_unclean)])


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


def unregister_broker(image: MetadataImage, broker_id: BrokerId) -> Outcome[None, MetadataRecord]:
    """Remove a fenced broker from the cluster. It lost its leaderships when it was fenced.

    Raises KafkaError: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST for one that is alive.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if not broker.fenced:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is alive: stop it before unregistering it.")
    return Outcome(None, [BrokerUnregistered(broker_id, broker.registration.broker_epoch)])


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
