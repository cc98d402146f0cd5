"""Who leads a partition: the first replica in sync that is alive, and nobody where none is (KIP-631).

Where a topic has unclean.leader.election.enable, any replica that is alive will do when nobody in sync is.
A broker in controlled shutdown is as good as gone: what is said here of those alive holds of `MetadataImage.active`.

An election may be asked for as well (KIP-183, KIP-460): for the preferred leader, the first of the replicas; or, where
nobody leads, for any replica that is alive, also one that is not in sync and has lost what the others alone had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from enum import IntEnum

from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, PartitionImage, TopicImage
from raylog.metadata.records import IsrChanged, LeaderChanged, MetadataRecord


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


TopicRule = Callable[[TopicImage], bool]
"""Whether partitions of the topic may be led by who is not in sync, where nobody in sync is alive."""


def never(topic: TopicImage) -> bool:
    return False


def elect(partition: PartitionImage, alive: Set[BrokerId], *, unclean: bool = False) -> BrokerId:
    """In the order of the replicas, so that the preferred one leads where it can; `unclean`: anybody before nobody."""
    living = [broker_id for broker_id in partition.replicas if broker_id in alive]
    in_sync = (broker_id for broker_id in living if broker_id in partition.isr)
    return next(in_sync, living[0] if unclean and living else NO_BROKER_ID)


def departure(
    image: MetadataImage, broker_id: BrokerId, may_be_unclean: TopicRule = never
) -> Iterator[LeaderChanged | IsrChanged]:
    """What becomes of its partitions when the broker is not heard of any more.

    It leaves every ISR in which somebody else is, since what it has not synced it may lose: whoever comes back must
    catch up first. The last one stays, for nobody else has all that was acknowledged.
    """
    yield from _taken_from(image, broker_id, may_be_unclean, also_where_alone=True)


def loss(
    image: MetadataImage, broker_id: BrokerId, may_be_unclean: TopicRule = never
) -> Iterator[LeaderChanged | IsrChanged]:
    """The same for a broker that comes back without what it had. Where it alone was in sync, what the other replicas
    have is all that is left: whoever of them is alive leads, else whoever comes first."""
    alive = image.active - {broker_id}
    for _, topic_id, before in image.partitions_on(broker_id):
        others = tuple(replica for replica in before.replicas if replica != broker_id)
        if before.isr == (broker_id,) and others:
            leader = next((replica for replica in others if replica in alive), NO_BROKER_ID)
            isr = others if leader == NO_BROKER_ID else (leader,)
            yield LeaderChanged(topic_id, before.partition, leader, LeaderEpoch(before.leader_epoch + 1), isr)
    for record in departure(image, broker_id, may_be_unclean):
        partition = image.topics_by_id[record.topic_id].partitions[record.partition]
        if partition.isr != (broker_id,) or partition.replicas == (broker_id,):
            yield record


def handover(image: MetadataImage, broker_id: BrokerId) -> Iterator[LeaderChanged | IsrChanged]:
    """What others take over from a broker that wants to stop. What it alone has in sync it leads to the last."""
    yield from _taken_from(image, broker_id, never, also_where_alone=False)


def _taken_from(
    image: MetadataImage, broker_id: BrokerId, may_be_unclean: TopicRule, *, also_where_alone: bool
) -> Iterator[LeaderChanged | IsrChanged]:
    alive = image.active - {broker_id}
    for tp, topic_id, before in image.partitions_on(broker_id):
        if before.isr == (broker_id,) and not also_where_alone:
            continue
        isr = tuple(one for one in before.isr if one != broker_id) or before.isr
        if before.leader == broker_id:
            yield _elected(image.topics[tp.topic], before, replace(before, isr=isr), alive, may_be_unclean)
        elif isr != before.isr:
            yield IsrChanged(topic_id, before.partition, isr)


def arrival(image: MetadataImage, broker_id: BrokerId, may_be_unclean: TopicRule = never) -> Iterator[LeaderChanged]:
    """The partitions that have waited for this broker, and for no other, get it as leader, in a new epoch."""
    alive = image.active | {broker_id}
    for tp, _, partition in image.partitions_on(broker_id):
        topic = image.topics[tp.topic]
        if partition.leader == NO_BROKER_ID and (broker_id in partition.isr or may_be_unclean(topic)):
            yield _elected(topic, partition, partition, alive, may_be_unclean)


def balance(
    image: MetadataImage, *, imbalance_percent_max: int
) -> Outcome[dict[TopicPartition, ErrorCode], MetadataRecord]:
    """Preferred leaders for the brokers that lack more than so many of their leaderships; as of `elect_leaders`.

    One that is only on its way into a partition does not lack it.
    """
    counts: Counter[BrokerId] = Counter()
    lacking: dict[BrokerId, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred_leader = partition.replicas[0]
            counts[preferred_leader] += 1
            if partition.leader != preferred_leader:
                tp = TopicPartition(topic.name, partition.partition)
                lacking.setdefault(preferred_leader, []).append(tp)
    wanted = [
        tp
        for broker_id, partitions in lacking.items()
        if 100 * len(partitions) > imbalance_percent_max * counts[broker_id]
        for tp in partitions
        if not image.topics[tp.topic].partitions[tp.partition].is_reassigning
    ]
    return elect_leaders(image, wanted, ElectionType.PREFERRED)


def uncleanly(image: MetadataImage, topic: TopicImage) -> Iterator[LeaderChanged]:
    """The topic's partitions without a leader get one that is alive, whatever it lacks."""
    alive = image.active
    for partition in topic.partitions:
        leaderless = partition.leader == NO_BROKER_ID
        if leaderless and elect(partition, alive, unclean=True) != NO_BROKER_ID:
            yield _elected(topic, partition, partition, alive, lambda _: True)


def _elected(
    topic: TopicImage, before: PartitionImage, after: PartitionImage, alive: Set[BrokerId], may_be_unclean: TopicRule
) -> LeaderChanged:
    """Whoever is elected uncleanly is alone in sync: the others may have what it lacks."""
    leader, isr = elect(after, alive), after.isr
    if leader == NO_BROKER_ID and may_be_unclean(topic):
        leader = elect(after, alive, unclean=True)
        isr = isr if leader == NO_BROKER_ID else (leader,)
    changed = None if isr == before.isr else isr
    return LeaderChanged(topic.topic_id, before.partition, leader, LeaderEpoch(before.leader_epoch + 1), changed)


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
        elected = elect(partition, alive, unclean=True)
    if elected == NO_BROKER_ID:
        return leader, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return elected, ErrorCode.NONE
