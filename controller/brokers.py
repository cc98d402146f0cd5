"""Commands about brokers: registration, and the blocks of producer ids they hand out."""

from __future__ import annotations

from uuid import UUID

from raylog.controller.image import MetadataImage
from raylog.controller.records import BrokerRegistered, LeaderChanged, MetadataRecord, ProducerIdsAllocated
from raylog.core.ids import BrokerId, LeaderEpoch, ProducerId
from raylog.core.outcome import Outcome

PRODUCER_ID_BLOCK = 1000
"""Ids one allocation covers: ids left over when a broker stops are skipped, which costs nothing of 2**63."""


def register_broker(
    image: MetadataImage, broker_id: BrokerId, *, incarnation_id: UUID, host: str, port: int
) -> Outcome[None, MetadataRecord]:
    """The broker is here, and leads what it alone holds under new leader epochs.

    A new epoch at each start is what lets a client notice that a tail it has read was lost with the machine's power:
    the lost records and those written in their place then differ in epoch (KIP-101, KIP-320).
    """
    records: list[MetadataRecord] = [BrokerRegistered(broker_id, incarnation_id, host, port)]
    records += [
        LeaderChanged(topic_id, partition.partition, broker_id, LeaderEpoch(partition.leader_epoch + 1))
        for _, topic_id, partition in image.partitions_led_by(broker_id)
    ]
    return Outcome(None, records)


def allocate_producer_ids(image: MetadataImage) -> Outcome[range, MetadataRecord]:
    """A block of producer ids that no one was ever given."""
    first = image.next_producer_id
    block = range(first, first + PRODUCER_ID_BLOCK)
    return Outcome(block, [ProducerIdsAllocated(ProducerId(block.stop))])
