"""Who leads a partition: the first replica in sync that is alive, and nobody where none is (KIP-631).

An election may be asked for as well (KIP-183, KIP-460): for the preferred leader, the first of the replicas; or, where
nobody leads, for any replica that is alive, also one that is not in sync and has lost what the others alone had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from enum import IntEnum

from raylog.controller.image import MetadataImage, PartitionImage
from raylog.controller.records import LeaderChanged, MetadataRecord
from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


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


def elect_leaders(
    image: MetadataImage, wanted: Iterable[TopicPartition], election_type: ElectionType
) -> Outcome[dict[TopicPartition, ErrorCode], MetadataRecord]:
    """What became of the election in each of these partitions, and who leads from now on.

    A partition has UNKNOWN_TOPIC_OR_PARTITION, or the code of `elect_as_asked`.
    """
    alive = image.alive
    results: dict[TopicPartition, ErrorCode] = {}
    records: list[MetadataRecord] = []
    for tp in wanted:
        partition = image.partition(tp)
        if partition is None:
            results[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif tp not in results:  # one that is named twice has one election
            leader, results[tp] = _election_in(partition, alive, election_type)
            if results[tp] == ErrorCode.NONE:
                leader_epoch = LeaderEpoch(partition.leader_epoch + 1)
                records.append(
                    LeaderChanged(image.topics[tp.topic].topic_id, partition.partition, leader, leader_epoch)
                )
    return Outcome(results, records)


def elect_as_asked(
    replicas: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    leader: BrokerId,
    *,
    alive: Set[BrokerId],
    election_type: ElectionType,
) -> tuple[BrokerId, ErrorCode]:
    """The new leader and NONE, or the leader as it is and why there is no election.

    ELECTION_NOT_NEEDED where the preferred leader leads, or, for an unclean election, anybody does.
    PREFERRED_LEADER_NOT_AVAILABLE where it is not alive or not in sync. ELIGIBLE_LEADERS_NOT_AVAILABLE where no replica
    is alive. A new leader that is not in `isr` was elected uncleanly: it alone is in sync from then on.
    """
    preferred = election_type is ElectionType.PREFERRED
    if leader != NO_BROKER_ID and (leader == replicas[0] or not preferred):
        return leader, ErrorCode.ELECTION_NOT_NEEDED
    eligible = [replica for replica in replicas if replica in isr and replica in alive]
    if preferred:
        # Where nobody leads, whoever may is better than nobody.
        if eligible and (eligible[0] == replicas[0] or leader == NO_BROKER_ID):
            return eligible[0], ErrorCode.NONE
        return leader, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    elected = elect(eligible or replicas, alive)
    if elected == NO_BROKER_ID:
        return leader, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return elected, ErrorCode.NONE


def _election_in(
    partition: PartitionImage, alive: Set[BrokerId], election_type: ElectionType
) -> tuple[BrokerId, ErrorCode]:
    leader, code = elect_as_asked(
        partition.replicas, partition.isr, partition.leader, alive=alive, election_type=election_type
    )
    if code == ErrorCode.NONE and leader not in partition.isr:
        # So far every replica is in sync, and LeaderChanged has no way to say that the others are so no more.
        raise InvariantViolation(f"partition {partition.partition}: elected {leader}, in sync is {partition.isr}")
    return leader, code
