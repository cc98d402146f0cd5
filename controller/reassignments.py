"""Partition reassignments: move replicas between brokers while the partition is in use (KIP-455).

    replicas 0 1 2       wanted: 3 1 2
        |                                   the new replicas are added and fetch the log
    replicas 3 1 2 0     adding 3, removing 0
        |                                   all remaining replicas are in sync
    replicas 3 1 2       under a new leader epoch; another leader if the old one is removed

A reassignment may be replaced by another or cancelled. Cancelling the last one removes all replicas that any of them
has added. The replica of a coordinator is not part of an assignment: it stays where it is, and nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from raylog.controller.elections import TopicRule, elect, never
from raylog.controller.topics import check_assignment
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, PartitionImage
from raylog.metadata.node_roles import only_brokers
from raylog.metadata.records import MetadataRecord, ReplicasChanged


class OngoingReassignment(NamedTuple):
    topic_partition: TopicPartition
    partition: PartitionImage


def reassign(
    image: MetadataImage, tp: TopicPartition, wanted: Sequence[int], *, may_change_replication_factor: bool = True
) -> Outcome[None, MetadataRecord]:
    """Reassign the partition to the brokers of `wanted`, the preferred leader first. Replaces a current reassignment.

    The reassignment waits for brokers that are not alive. Raises KafkaError:
    UNKNOWN_TOPIC_OR_PARTITION; INVALID_REPLICA_ASSIGNMENT for an empty list, a duplicate or an unregistered broker;
    INVALID_REPLICATION_FACTOR for another number of replicas if that is not allowed.
    """
    topic_id, before = _partition(image, tp)
    target = check_assignment(image, wanted)
    brokers = only_brokers(before.replicas)
    count_before = len(set(brokers) - set(before.adding))
    if not may_change_replication_factor and len(target) != count_before:
        message = (
            f"The reassignment would change the replication factor of {tp} from {count_before} to "
            f"{len(target)}, which the request does not allow."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    removing = tuple(sorted(set(brokers) - set(target)))
    added = set(target) - set(brokers) | set(before.adding)
    coordinators = _without(before.replicas, brokers)
    after = replace(before, replicas=coordinators + target + removing, adding=tuple(sorted(added)), removing=removing)
    return Outcome(None, changed(topic_id, before, after, eligible(image, topic_id, before)))


def cancel(
    image: MetadataImage, tp: TopicPartition, allows_unclean: TopicRule = never
) -> Outcome[None, MetadataRecord]:
    """Return to the original replicas. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION; NO_REASSIGNMENT_IN_PROGRESS;
    INVALID_REPLICA_ASSIGNMENT if none of them is in sync any more, unless the topic `allows_unclean`.
    """
    topic_id, before = _partition(image, tp)
    if not before.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = _without(before.replicas, before.adding)
    isr = _without(before.isr, before.adding)
    unclean = allows_unclean(image.topics[tp.topic])
    if before.isr and not isr and not unclean:
        message = f"{tp}: cancelling the reassignment would require an unclean leader election."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if before.isr and not isr:
        isr = replicas[:1]
    after = replace(before, replicas=replicas, isr=isr, adding=(), removing=())
    return Outcome(None, changed(topic_id, before, after, eligible(image, topic_id, before), unclean=unclean))


def completion(image: MetadataImage, topic_id: UUID, partition: PartitionImage) -> ReplicasChanged | None:
    """The record that completes the reassignment of a partition in this state; None if it is not complete."""
    if not partition.is_reassigning or _completed(partition) is None:
        return None
    [record] = changed(topic_id, partition, partition, eligible(image, topic_id, partition))
    return record


def ongoing(image: MetadataImage, wanted: Collection[TopicPartition] | None) -> Iterator[OngoingReassignment]:
    """The current reassignments of these partitions; None means all partitions."""
    if wanted is None:
        for topic in image.topics.values():
            for partition in topic.partitions:
                if partition.is_reassigning:
                    yield OngoingReassignment(TopicPartition(topic.name, partition.partition), partition)
        return
    for tp in wanted:
        found = image.partition(tp)
        if found is not None and found.is_reassigning:
            yield OngoingReassignment(tp, found)


def _partition(image: MetadataImage, tp: TopicPartition) -> tuple[UUID, PartitionImage]:
    partition = image.partition(tp)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {tp} does not exist.")
    return image.topics[tp.topic].topic_id, partition


def eligible(image: MetadataImage, topic_id: UUID, partition: PartitionImage) -> Set[BrokerId]:
    return image.eligible(topic_id, partition, image.active)


def changed(
    topic_id: UUID, before: PartitionImage, wanted: PartitionImage, alive: Set[BrokerId], *, unclean: bool = False
) -> list[ReplicasChanged]:
    """The record that changes the partition to `wanted`, or to its completion; empty if nothing changes.

    The leader stays if it can. The leader epoch is raised when a replica is removed, which fences the removed one.
    """
    after = _completed(wanted) or wanted
    leader, isr = before.leader, after.isr
    if leader not in isr or leader not in alive:
        leader = elect(after, alive, unclean=unclean)
        if leader in alive and leader not in isr:
            isr = (leader,)
    is_new = leader != before.leader or not set(before.replicas) <= set(after.replicas)
    leader_epoch = LeaderEpoch(before.leader_epoch + is_new)
    after = replace(after, isr=isr, leader=leader, leader_epoch=leader_epoch)
    if after == before:
        return []
    return [
        ReplicasChanged(
            topic_id, after.partition, after.replicas, after.adding, after.removing, isr, leader, leader_epoch
        )
    ]


def _completed(partition: PartitionImage) -> PartitionImage | None:
    """The partition after its reassignment, if all remaining brokers are in sync."""
    if not partition.is_reassigning:
        return None
    replicas = _without(partition.replicas, partition.removing)
    if not replicas or not set(only_brokers(replicas)) <= set(partition.isr):
        return None
    isr = tuple(replica for replica in replicas if replica in partition.isr)
    return replace(partition, replicas=replicas, isr=isr, adding=(), removing=())


def _without(brokers: tuple[BrokerId, ...], gone: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return tuple(broker_id for broker_id in brokers if broker_id not in gone)
