"""Who leads a partition: the first replica in sync that is alive, and nobody where none is (KIP-631)."""

from __future__ import annotations

from collections.abc import Iterator, Set

from raylog.controller.image import MetadataImage, PartitionImage
from raylog.controller.records import IsrChanged, LeaderChanged
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch


def elect(partition: PartitionImage, alive: Set[BrokerId]) -> BrokerId:
    """In the order of the replicas, so that the preferred one leads where it can."""
    eligible = (broker_id for broker_id in partition.replicas if broker_id in partition.isr and broker_id in alive)
    return next(eligible, NO_BROKER_ID)


def departure(image: MetadataImage, broker_id: BrokerId) -> Iterator[LeaderChanged | IsrChanged]:
    """What becomes of its partitions when the broker is not heard of any more.

    It leaves every ISR in which somebody else is, since what it has not synced it may lose: whoever comes back must
    catch up first. The last one stays, for nobody else has all that was acknowledged.
    """
    alive = image.alive - {broker_id}
    for _, topic_id, before in image.partitions_on(broker_id):
        isr = tuple(one for one in before.isr if one != broker_id) or before.isr
        after = PartitionImage(before.partition, before.replicas, isr, before.leader, before.leader_epoch)
        if before.leader == broker_id:
            changed = None if isr == before.isr else isr
            leader_epoch = LeaderEpoch(before.leader_epoch + 1)
            yield LeaderChanged(topic_id, before.partition, elect(after, alive), leader_epoch, changed)
        elif isr != before.isr:
            yield IsrChanged(topic_id, before.partition, isr)


def arrival(image: MetadataImage, broker_id: BrokerId) -> Iterator[LeaderChanged]:
    """The partitions that have waited for this broker, and for no other, get it as leader, in a new epoch."""
    alive = image.alive | {broker_id}
    for _, topic_id, partition in image.partitions_on(broker_id):
        if partition.leader == NO_BROKER_ID and broker_id in partition.isr:
            leader_epoch = LeaderEpoch(partition.leader_epoch + 1)
            yield LeaderChanged(topic_id, partition.partition, elect(partition, alive), leader_epoch)
