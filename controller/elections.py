"""Who leads a partition: the first replica in sync that is alive, and nobody where none is (KIP-631).

A broker in controlled shutdown is as good as gone: what is said here of those alive holds of `MetadataImage.active`.

An election may be asked for as well (KIP-183, KIP-460): for the preferred leader, the first of the replicas; or, where
nobody leads, for any replica that is alive, also one that is not in sync and has lost what the others alone had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from enum import IntEnum

from raylog.controller.image import MetadataImage, PartitionImage
from raylog.controller.records import IsrChanged, LeaderChanged, MetadataRecord
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def elect(partition: PartitionImage, alive: Set[BrokerId]) -> BrokerId:
    """In the order of the replicas, so that the preferred one leads where it can."""
    eligible = (broker_id for broker_id in partition.replicas if broker_id in partition.isr and broker_id in alive)
    return next(eligible, NO_BROKER_ID)


def departure(image: MetadataImage, broker_id: BrokerId) -> Iterator[LeaderChanged | IsrChanged]:
    """What becomes of its partitions when the broker is not heard of any more.

    It leaves every ISR in which somebody else is, since what it has not synced it may lose: whoever comes back must
    catch up first. The last one stays, for nobody else has all that was acknowledged.
    """
    yield from _taken_from(image, broker_id, also_where_alone=True)


def handover(image: MetadataImage, broker_id: BrokerId) -> Iterator[LeaderChanged | IsrChanged]:
    """What others take over from a broker that wants to stop. What it alone has in sync it leads to the last."""
    yield from _taken_from(image, broker_id, also_where_alone=False)


def _taken_from(
    image: MetadataImage, broker_id: BrokerId, *, also_where_alone: bool
) -> Iterator[LeaderChanged | IsrChanged]:
    alive = image.active - {broker_id}
    for _, topic_id, before in image.partitions_on(broker_id):
        if before.isr == (broker_id,) and not also_where_alone:
            continue
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
    alive = image.active | {broker_id}
    for _, topic_id, partition in image.partitions_on(broker_id):
        if partition.leader == NO_BROKER_ID and broker_id in partition.isr:
            leader_epoch = LeaderEpoch(partition.leader_epoch + 1)
            yield LeaderChanged(topic_id, partition.partition, elect(partition, alive), leader_epoch)


def elect_leaders(
    image: MetadataImage, wanted: Iterable[TopicPartition], election_type: ElectionType
) -> Outcome[dict[TopicPartition, ErrorCode], MetadataRecord]:
    """What became of the election in each of these partitions, and who leads from now on.

    A partition has UNKNOWN_TOPIC_OR_PARTITION, or the code of `elect_as_asked`. Whoever was elected uncleanly is alone
    in sync from then on.
    """
    alive = image.active
    results: dict[TopicPartition, ErrorCode] = {}
    records: list[MetadataRecord] = []
    for tp in wanted:
        partition = image.partition(tp)
        if partition is None:
            results[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif tp not in results:  # one that is named twice has one election
            leader, results[tp] = elect_as_asked(partition, alive, election_type)
            if results[tp] == ErrorCode.NONE:
                isr = None if leader in partition.isr else (leader,)
                leader_epoch = LeaderEpoch(partition.leader_epoch + 1)
                topic_id = image.topics[tp.topic].topic_id
                records.append(LeaderChanged(topic_id, partition.partition, leader, leader_epoch, isr))
    return Outcome(results, records)


def elect_as_asked(
    partition: PartitionImage, alive: Set[BrokerId], election_type: ElectionType
) -> tuple[BrokerId, ErrorCode]:
    """The new leader and NONE, or the leader as it is and why there is no election.

    ELECTION_NOT_NEEDED where the preferred leader leads, or, for an unclean election, anybody does.
    PREFERRED_LEADER_NOT_AVAILABLE where it is not alive or not in sync. ELIGIBLE_LEADERS_NOT_AVAILABLE where no replica
    is alive. Who is in sync comes before who is not.
    """
    leader, preferred_leader = partition.leader, partition.replicas[0]
    elected = elect(partition, alive)
    if election_type is ElectionType.PREFERRED:
        if leader == preferred_leader:
            return leader, ErrorCode.ELECTION_NOT_NEEDED
        # Where nobody leads, whoever may is better than nobody.
        if elected == preferred_leader or (leader == NO_BROKER_ID and elected != NO_BROKER_ID):
            return elected, ErrorCode.NONE
        return leader, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if leader != NO_BROKER_ID:
        return leader, ErrorCode.ELECTION_NOT_NEEDED
    if elected == NO_BROKER_ID:
        elected = next((replica for replica in partition.replicas if replica in alive), NO_BROKER_ID)
    if elected == NO_BROKER_ID:
        return leader, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return elected, ErrorCode.NONE
