"""The assignors of consumer groups, which run in the coordinator: uniform and range, under Kafka's names."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from raylog.groupcoord.consumer.records import NO_PARTITIONS, Partitions, TopicIdPartition

BALANCING_ROUNDS_MAX: Final = 20
"""How often `uniform` goes through topics with different subscribers to move partitions. Few need more than two."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member, as the assignors see it."""

    order: str
    """Its instance id, or else its member id. `range` assigns in this order."""
    topic_ids: frozenset[UUID]
    """The existing topics that it subscribes to."""
    before: Partitions
    """Its previous target assignment."""


Topics = Sequence[tuple[UUID, int]]
"""Id and number of partitions of topics that exist, by name."""
Assignor = Callable[[Mapping[str, Candidate], Topics], dict[str, Partitions]]
"""Members and topics -> the partitions of each member. Each partition of a topic with subscribers goes to one."""


def uniform(members: Mapping[str, Candidate], topics: Topics) -> dict[str, Partitions]:
    """Numbers of partitions that are as equal as the subscriptions permit; members keep what they can keep."""
    owned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in sorted(members)}
    subscribers = _subscribers(members, topics)
    topics = [topic for topic in topics if subscribers[topic[0]]]
    subscriptions = {member.topic_ids for member in members.values()}
    limit = _Limit(members, topics) if len(subscriptions) == 1 else None
    owner_before = {partition: member_id for member_id in owned for partition in members[member_id].before}
    free: list[TopicIdPartition] = []
    for topic_id, count in topics:
        for number in range(count):
            partition = (topic_id, number)
            owner = owner_before.get(partition)
            if (
                owner is not None
                and topic_id in members[owner].topic_ids
                and (limit is None or limit.allows(len(owned[owner])))
            ):
                owned[owner].add(partition)
            else:
                free.append(partition)
    if limit is not None:
        _fill(owned, free)
    else:
        _fill_different(owned, free, subscribers)
        _balance(owned, subscribers)
    return {member_id: frozenset(partitions) for member_id, partitions in owned.items()}


def range_(members: Mapping[str, Candidate], topics: Topics) -> dict[str, Partitions]:
    """Consecutive partitions of each topic, in the order of instance and member ids; the first get one more."""
    owned: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in members}
    subscribers = _subscribers(members, topics)
    for topic_id, count in topics:
        of_topic = sorted(subscribers[topic_id], key=lambda member_id: (members[member_id].order, member_id))
        if not of_topic:
            continue
        each, more = divmod(count, len(of_topic))
        start = 0
        for place, member_id in enumerate(of_topic):
            end = start + each + (place < more)
            owned[member_id] += [(topic_id, number) for number in range(start, end)]
            start = end
    return {member_id: frozenset(partitions) or NO_PARTITIONS for member_id, partitions in owned.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}


class _Limit:
    """How many partitions members with one subscription may keep: all the quota, and some one more."""

    def __init__(self, members: Mapping[str, Candidate], topics: Topics) -> None:
        self._quota, self._more = divmod(sum(count for _, count in topics), len(members))

    def allows(self, kept: int) -> bool:
        """Whether a member that keeps so many may keep another one."""
        if kept < self._quota:
            return True
        if kept == self._quota and self._more > 0:
            self._more -= 1
            return True
        return False


def _subscribers(members: Mapping[str, Candidate], topics: Topics) -> dict[UUID, list[str]]:
    subscribers: dict[UUID, list[str]] = {topic_id: [] for topic_id, _ in topics}
    for member_id in sorted(members):
        for topic_id in members[member_id].topic_ids:
            if topic_id in subscribers:
                subscribers[topic_id].append(member_id)
    return subscribers


def _fill(owned: dict[str, set[TopicIdPartition]], free: Sequence[TopicIdPartition]) -> None:
    """Each free partition goes to the member with the fewest; all subscribe to all topics."""
    heap = [(len(partitions), member_id) for member_id, partitions in owned.items()]
    heapq.heapify(heap)
    for partition in free:
        count, member_id = heap[0]
        owned[member_id].add(partition)
        heapq.heapreplace(heap, (count + 1, member_id))


def _fill_different(
    owned: dict[str, set[TopicIdPartition]],
    free: Sequence[TopicIdPartition],
    subscribers: Mapping[UUID, Sequence[str]],
) -> None:
    """Each free partition goes to the subscriber with the fewest, beginning with topics that have few subscribers."""
    for partition in sorted(free, key=lambda each: len(subscribers[each[0]])):
        owned[min(subscribers[partition[0]], key=lambda member_id: len(owned[member_id]))].add(partition)


def _balance(owned: dict[str, set[TopicIdPartition]], subscribers: Mapping[UUID, Sequence[str]]) -> None:
    """Move partitions from subscribers that have two more than another one. Each move makes the numbers more equal."""
    for _ in range(BALANCING_ROUNDS_MAX):
        moved = False
        for topic_id, of_topic in subscribers.items():
            while len(of_topic) > 1:
                least = min(of_topic, key=lambda member_id: len(owned[member_id]))
                movable = _movable(owned, topic_id, of_topic, len(owned[least]) + 2)
                if movable is None:
                    break
                most, partition = movable
                owned[most].remove(partition)
                owned[least].add(partition)
                moved = True
        if not moved:
            return


def _movable(
    owned: Mapping[str, set[TopicIdPartition]], topic_id: UUID, of_topic: Sequence[str], at_least: int
) -> tuple[str, TopicIdPartition] | None:
    """The subscriber with the most partitions, `at_least` so many, that has some of the topic; and the last of them."""
    for member_id in sorted(of_topic, key=lambda each: -len(owned[each])):
        if len(owned[member_id]) < at_least:
            return None
        numbers = [number for owned_id, number in owned[member_id] if owned_id == topic_id]
        if numbers:
            return member_id, (topic_id, max(numbers))
    return None
