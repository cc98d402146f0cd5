"""Changes of the ISR that a leader requests by AlterPartition (KIP-497, KIP-903)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from raylog.controller.reassignments import completion
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, PartitionImage, with_replicas
from raylog.metadata.records import IsrChanged, MetadataRecord

UNKNOWN_BROKER_EPOCH = -1
"""The leader does not know the broker epoch of the follower."""


def alter_partition(
    image: MetadataImage,
    leader: BrokerId,
    topic_id: UUID,
    partition: int,
    *,
    leader_epoch: int,
    partition_epoch: int,
    isr: Sequence[tuple[BrokerId, int]],
) -> Outcome[PartitionImage, MetadataRecord]:
    """Replace the ISR by `isr`, pairs of a replica and its broker epoch as the leader knows it. Returns the partition
    after the change: if that completes a reassignment it has a new leader epoch, and perhaps another leader.

    Raises KafkaError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; FENCED_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER if
    the broker is not the leader; INVALID_UPDATE_VERSION if the partition has changed since; INELIGIBLE_REPLICA if a new
    member is fenced, is shutting down or has another broker epoch, or its log directory has failed; INVALID_REQUEST.
    """
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    before = topic.partitions[partition]
    if leader_epoch < before.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if before.leader != leader or leader_epoch > before.leader_epoch:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition_epoch != before.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    members = [member for member, _ in isr]
    if len(set(members)) != len(members) or not set(members) <= set(before.replicas) or leader not in members:
        message = f"ISR {members}: must contain the leader and other replicas of {list(before.replicas)}, each once"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    for member, broker_epoch in isr:
        if member not in before.isr:
            _check_eligible(image, member, broker_epoch)
            if not image.is_directory_online(member, topic_id, partition):
                message = f"the log directory of broker {member} that has the replica has failed"
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, message)
    in_order = tuple(replica for replica in before.replicas if replica in members)
    after = replace(before, isr=in_order, partition_epoch=before.partition_epoch + 1)
    ended = completion(image, topic_id, after)
    if ended is None:
        return Outcome(after, [IsrChanged(topic_id, partition, in_order)])
    return Outcome(with_replicas(before, ended), [ended])


def _check_eligible(image: MetadataImage, replica: BrokerId, broker_epoch: int) -> None:
    """A follower that was restarted since its last fetch may have lost records."""
    broker = image.brokers.get(replica)
    if broker is None or not broker.active:
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {replica} is fenced or shutting down")
    if broker_epoch != broker.registration.broker_epoch:
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {replica} has registered again since its last fetch")
