"""Leader election: the first in-sync replica that is alive leads a partition; without one it has no leader (KIP-631).

With unclean.leader.election.enable any live replica may be elected if no in-sync replica is alive. A broker in
controlled shutdown counts as not alive: `alive` in this module means `MetadataImage.active`.

Clients may request elections (KIP-183, KIP-460): of the preferred leader, which is the first replica, or, for a
partition without a leader, of any live replica, even one that is not in sync; records that it lacks are then lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from enum import IntEnum
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, PartitionImage, TopicImage
from raylog.metadata.node_roles import is_coordinator
from raylog.metadata.records import IsrChanged, LeaderChanged, MetadataRecord


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


TopicRule = Callable[[TopicImage], bool]
"""Whether the topic allows unclean leader election."""


def never(topic: TopicImage) -> bool:
    return False


def elect(partition: PartitionImage, alive: Set[BrokerId], *, unclean: bool = False) -> BrokerId:
    """The first live in-sync replica in assignment order; with `unclean`, any live replica if there is none, but one
    that has lost its records, or a coordinator, only if there is no other.

    `alive` are the brokers whose replica is eligible (`MetadataImage.eligible`).
    """
    living = [broker_id for broker_id in partition.replicas if broker_id in alive]
    candidates = [broker_id for broker_id in living if broker_id in partition.isr]
    if unclean:
        candidates += sorted(living, key=lambda node: (node in partition.emptied, is_coordinator(node)))
    return candidates[0] if candidates else NO_BROKER_ID


def on_fenced(
    image: MetadataImage, broker_id: BrokerId, allows_unclean: TopicRule = never
) -> Iterator[LeaderChanged | IsrChanged]:
    """The changes of its partitions when a broker is fenced.

    It leaves every ISR that has another member, since it may lose records that it has not synced. The last member of an
    ISR stays in it: no other replica has all acknowledged records.
    """
    yield from _without_broker(image, broker_id, allows_unclean, also_last_in_sync=True)


def on_directory_missing(
    image: MetadataImage, broker_id: BrokerId, allows_unclean: TopicRule = never
) -> Iterator[LeaderChanged | IsrChanged]:
    """The same for a broker that returns without one of its log directories.

    A replica whose directory is not known may have been in that one, so that it is not in sync even if no other replica
    is: the partition waits for an unclean election. One that is known to be there stays in the ISR until the broker has
    created it anew in another directory, since the directory may return.
    """
    alive = image.active - {broker_id}
    for tp, topic_id, before in image.partitions_on(broker_id):
        if before.isr == (broker_id,) and image.directory_of(broker_id, topic_id, before.partition) is None:
            yield _emptied(image, broker_id, tp, before, alive, allows_unclean)
        else:
            yield from _without(image, broker_id, tp, before, alive, allows_unclean)


def on_replicas_failed(
    image: MetadataImage,
    broker_id: BrokerId,
    replicas: Iterable[tuple[UUID, int]],
    allows_unclean: TopicRule = never,
) -> Iterator[LeaderChanged | IsrChanged]:
    """The changes when the log directory of these replicas fails on a broker that is alive; topic ids and
    partitions."""
    alive = image.active - {broker_id}
    for topic_id, number in replicas:
        topic = image.topics_by_id[topic_id]
        tp = TopicPartition(topic.name, number)
        yield from _without(image, broker_id, tp, topic.partitions[number], alive, allows_unclean)


def on_shutdown_begun(image: MetadataImage, broker_id: BrokerId) -> Iterator[LeaderChanged | IsrChanged]:
    """The changes when a broker begins to shut down. It keeps partitions of which it is the only in-sync replica."""
    yield from _without_broker(image, broker_id, never, also_last_in_sync=False)


def _without_broker(
    image: MetadataImage, broker_id: BrokerId, allows_unclean: TopicRule, *, also_last_in_sync: bool
) -> Iterator[LeaderChanged | IsrChanged]:
    alive = image.active - {broker_id}
    for tp, _, before in image.partitions_on(broker_id):
        if before.isr != (broker_id,) or also_last_in_sync:
            yield from _without(image, broker_id, tp, before, alive, allows_unclean)


def _without(
    image: MetadataImage,
    broker_id: BrokerId,
    tp: TopicPartition,
    before: PartitionImage,
    alive: Set[BrokerId],
    allows_unclean: TopicRule,
) -> Iterator[LeaderChanged | IsrChanged]:
    isr = tuple(one for one in before.isr if one != broker_id) or before.isr
    if before.leader == broker_id:
        yield _elected(image, tp, before, replace(before, isr=isr), alive, allows_unclean)
    elif isr != before.isr:
        yield IsrChanged(image.topics[tp.topic].topic_id, before.partition, isr)


def on_created_anew(
    image: MetadataImage, broker_id: BrokerId, tp: TopicPartition, allows_unclean: TopicRule = never
) -> LeaderChanged | IsrChanged | None:
    """The change when a broker has lost a replica with its log directory, and has created it anew in another one: the
    replica is not in sync, even if no other one is."""
    before = image.topics[tp.topic].partitions[tp.partition]
    if broker_id not in before.isr or before.leader == broker_id:
        return None
    isr = tuple(one for one in before.isr if one != broker_id)
    if isr:
        return IsrChanged(image.topics[tp.topic].topic_id, tp.partition, isr)
    return _emptied(image, broker_id, tp, before, image.active - {broker_id}, allows_unclean)


def _emptied(
    image: MetadataImage,
    broker_id: BrokerId,
    tp: TopicPartition,
    before: PartitionImage,
    alive: Set[BrokerId],
    allows_unclean: TopicRule,
) -> LeaderChanged:
    elected = _elected(image, tp, before, replace(before, isr=()), alive, allows_unclean)
    return replace(elected, emptied=(broker_id,)) if elected.leader == NO_BROKER_ID else elected


def on_unfenced(
    image: MetadataImage, broker_id: BrokerId, allows_unclean: TopicRule = never
) -> Iterator[LeaderChanged]:
    """The elections when a broker is unfenced: it leads partitions that have no leader and may have it as leader."""
    alive = image.active | {broker_id}
    for tp, _, partition in image.partitions_on(broker_id):
        if partition.leader == NO_BROKER_ID and (broker_id in partition.isr or allows_unclean(image.topics[tp.topic])):
            elected = _elected(image, tp, partition, partition, alive, allows_unclean)
            if elected.leader != NO_BROKER_ID:
                yield elected


def balance_leaders(
    image: MetadataImage, *, imbalance_percent_max: int
) -> Outcome[dict[TopicPartition, ErrorCode], MetadataRecord]:
    """Elect preferred leaders for brokers whose leader imbalance is above this percentage; results as `elect_leaders`.

    Replicas that a reassignment is adding do not count as imbalanced, nor partitions of coordinators, which have a rule
    of their own (coordinators.py).
    """
    counts: Counter[BrokerId] = Counter()
    without_preferred_leader: dict[BrokerId, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred_leader = partition.replicas[0]
            if is_coordinator(preferred_leader):
                continue
            counts[preferred_leader] += 1
            if partition.leader != preferred_leader:
                tp = TopicPartition(topic.name, partition.partition)
                without_preferred_leader.setdefault(preferred_leader, []).append(tp)
    wanted = [
        tp
        for broker_id, partitions in without_preferred_leader.items()
        if 100 * len(partitions) > imbalance_percent_max * counts[broker_id]
        for tp in partitions
        if not image.topics[tp.topic].partitions[tp.partition].is_reassigning
    ]
    return elect_leaders(image, wanted, ElectionType.PREFERRED)


def unclean_elections(image: MetadataImage, topic: TopicImage) -> Iterator[LeaderChanged]:
    """Unclean elections for all partitions of the topic that have no leader and a live replica."""
    alive = image.active
    for partition in topic.partitions:
        if partition.leader == NO_BROKER_ID:
            tp = TopicPartition(topic.name, partition.partition)
            elected = _elected(image, tp, partition, partition, alive, lambda _: True)
            if elected.leader != NO_BROKER_ID:
                yield elected


def _elected(
    image: MetadataImage,
    tp: TopicPartition,
    before: PartitionImage,
    after: PartitionImage,
    alive: Set[BrokerId],
    allows_unclean: TopicRule,
) -> LeaderChanged:
    """The ISR after an unclean election is the new leader alone: the others may have records that it lacks."""
    topic = image.topics[tp.topic]
    alive = image.eligible(topic.topic_id, before, alive)
    leader, isr = elect(after, alive), after.isr
    if leader == NO_BROKER_ID and allows_unclean(topic):
        leader = elect(after, alive, unclean=True)
        isr = isr if leader == NO_BROKER_ID else (leader,)
    changed = None if isr == before.isr else isr
    return LeaderChanged(topic.topic_id, before.partition, leader, LeaderEpoch(before.leader_epoch + 1), changed)


def elect_leaders(
    image: MetadataImage, wanted: Iterable[TopicPartition], election_type: ElectionType
) -> Outcome[dict[TopicPartition, ErrorCode], MetadataRecord]:
    """Hold the requested elections, and return the result of each partition.

    The result is UNKNOWN_TOPIC_OR_PARTITION or the code of `elect_by_type`. After an unclean election the ISR is the
    new leader alone.
    """
    alive = image.active
    results: dict[TopicPartition, ErrorCode] = {}
    records: list[MetadataRecord] = []
    for tp in wanted:
        partition = image.partition(tp)
        if partition is None:
            results[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif tp not in results:  # a duplicate partition has one election
            topic_id = image.topics[tp.topic].topic_id
            eligible = image.eligible(topic_id, partition, alive)
            leader, results[tp] = elect_by_type(partition, eligible, election_type)
            if results[tp] == ErrorCode.NONE:
                isr = None if leader in partition.isr else (leader,)
                leader_epoch = LeaderEpoch(partition.leader_epoch + 1)
                records.append(LeaderChanged(topic_id, partition.partition, leader, leader_epoch, isr))
    return Outcome(results, records)


def elect_by_type(
    partition: PartitionImage, alive: Set[BrokerId], election_type: ElectionType
) -> tuple[BrokerId, ErrorCode]:
    """The new leader and NONE, or the present leader and the reason why no election is held.

    ELECTION_NOT_NEEDED: the preferred leader leads or, for an unclean election, the partition has a leader.
    PREFERRED_LEADER_NOT_AVAILABLE: it is not alive or not in sync. ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica is alive.
    An unclean election prefers in-sync replicas.
    """
    leader, preferred_leader = partition.leader, partition.replicas[0]
    elected = elect(partition, alive)
    if election_type is ElectionType.PREFERRED:
        if leader == preferred_leader:
            return leader, ErrorCode.ELECTION_NOT_NEEDED
        # Any in-sync leader is better than none.
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


def count_unclean(image: MetadataImage, records: Iterable[MetadataRecord]) -> int:
    """How many of the records elect a leader that is not in the ISR, so that acknowledged records may be lost."""
    found = 0
    for record in records:
        topic = image.topics_by_id.get(record.topic_id) if isinstance(record, LeaderChanged) else None
        if topic is not None and isinstance(record, LeaderChanged) and record.leader != NO_BROKER_ID:
            found += record.leader not in topic.partitions[record.partition].isr
    return found
