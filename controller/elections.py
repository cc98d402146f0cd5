"""Who leads a partition: the first replica in sync that is alive, and nobody where none is (KIP-631)."""

from __future__ import annotations

from collections.abc import Sequence, Set

from raylog.controller.image import MetadataImage
from raylog.controller.records import LeaderChanged
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch


def elect(isr: Sequence[BrokerId], alive: Set[BrokerId]) -> BrokerId:
    return next((broker_id for broker_id in isr if broker_id in alive), NO_BROKER_ID)


def elections_for(image: MetadataImage, broker_id: BrokerId, *, alive: Set[BrokerId]) -> list[LeaderChanged]:
    """The partitions of this broker whose leader has to change for `alive` to be the brokers that may lead."""
    changes = []
    for _, topic_id, partition in image.partitions_on(broker_id):
        leader = partition.leader if partition.leader in alive else elect(partition.isr, alive)
        if leader != partition.leader:
            leader_epoch = LeaderEpoch(partition.leader_epoch + 1)
            changes.append(LeaderChanged(topic_id, partition.partition, leader, leader_epoch))
    return changes
