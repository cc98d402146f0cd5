"""Commands about brokers: registration, fencing, and the blocks of producer ids they hand out."""

from __future__ import annotations

from uuid import UUID

from raylog.controller.elections import TopicRule, arrival, departure, handover, loss, never
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
"""Ids one allocation covers, as in Kafka: those left over when a broker stops are skipped."""


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
    may_be_unclean: TopicRule = never,
) -> Outcome[int, MetadataRecord]:
    """The broker's epoch. It is fenced, and leads nothing, until it has caught up with the metadata log.

    `broker_epoch` is the offset the first record will have. The same incarnation may ask twice, when an answer was
    lost. One that comes with another directory than it had has lost all that it held.

    Raises KafkaError: DUPLICATE_BROKER_REGISTRATION while another incarnation of this id is alive; UNSUPPORTED_VERSION
    for a broker that does not support the finalized metadata level.
    """
    before = image.brokers.get(broker_id)
    if before is not None and before.registration.incarnation_id == incarnation_id:
        return Outcome(before.registration.broker_epoch)
    check_registration(image, features)
    if predecessor_alive:
        message = f"Another incarnation of broker {broker_id} is alive."
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    registered = BrokerRegistered(broker_id, incarnation_id, broker_epoch, endpoints, rack, directory_id, features)
    if before is not None and before.registration.directory_id not in (None, directory_id):
        return Outcome(broker_epoch, [registered, *loss(image, broker_id, may_be_unclean)])
    return Outcome(broker_epoch, [registered, *departure(image, broker_id, may_be_unclean)])


def fence_broker(
    image: MetadataImage, broker_id: BrokerId, may_be_unclean: TopicRule = never
) -> Outcome[None, MetadataRecord]:
    """The broker is not heard of: others lead what it has led, and what nobody else has in sync has no leader."""
    broker = image.brokers[broker_id]
    if broker.fenced:
        return Outcome(None)
    fenced = BrokerFenced(broker_id, broker.registration.broker_epoch)
    return Outcome(None, [fenced, *departure(image, broker_id, may_be_unclean)])


def unfence_broker(
    image: MetadataImage, broker_id: BrokerId, may_be_unclean: TopicRule = never
) -> Outcome[None, MetadataRecord]:
    """The broker has caught up. What it alone holds it leads under a new leader epoch.

    The new epoch is what lets a client notice that a tail it has read was lost with the machine's power: the lost
    records and those written in their place then differ in epoch (KIP-101, KIP-320).
    """
    broker = image.brokers[broker_id]
    if not broker.fenced:
        return Outcome(None)
    unfenced = BrokerUnfenced(broker_id, broker.registration.broker_epoch)
    return Outcome(None, [unfenced, *arrival(image, broker_id, may_be_unclean)])


def unregister_broker(image: MetadataImage, broker_id: BrokerId) -> Outcome[None, MetadataRecord]:
    """The broker is none of the cluster's any more; what it led it had lost when it was fenced.

    Raises KafkaError: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST for one that is alive.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if not broker.fenced:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is alive: it must be stopped before.")
    return Outcome(None, [BrokerUnregistered(broker_id, broker.registration.broker_epoch)])


def shut_down_broker(
    image: MetadataImage, broker_id: BrokerId, *, next_offset: Offset, known_upto: Offset
) -> Outcome[bool, MetadataRecord]:
    """Whether the broker, which wants to stop, may do so now (KIP-631, controlled shutdown).

    First it leaves every ISR in which somebody else is, and others lead what it has led. It may stop once all of those
    who may lead, and it itself, know of that: they know all below `known_upto`. `next_offset` is that of the next
    record. It is fenced, as ever, when its connection breaks: until then it leads what it alone has in sync.
    """
    broker = image.brokers[broker_id]
    if broker.fenced:
        return Outcome(True)
    if broker.shutdown_offset is None:
        taken = list(handover(image, broker_id))
        end_offset = Offset(next_offset + 1 + len(taken))
        return Outcome(
            False, [ControlledShutdownBegun(broker_id, broker.registration.broker_epoch, end_offset), *taken]
        )
    return Outcome(known_upto >= broker.shutdown_offset)


def allocate_producer_ids(
    image: MetadataImage, broker_id: BrokerId, *, broker_epoch: int
) -> Outcome[range, MetadataRecord]:
    """A block of producer ids that no one was ever given. Raises KafkaError as `registered_broker`."""
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
