"""How the leader of a consumer group shares the partitions among the members. Pure.

Range and round robin give what Kafka's assignors give. The sticky ones share as evenly, and keep as much as possible
where it is; which partition moves is not always the one that Kafka's would move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby
from typing import Final, Protocol

from raylog.config.consumer import COOPERATIVE_STICKY, RANGE, ROUND_ROBIN, STICKY
from raylog.core.ids import TopicPartition
from raylog.protocol.consumer_protocol import (
    NO_GENERATION,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)

Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscription, as the leader of the group gets it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    owned: Sequence[TopicPartition] = ()
    """What it has, with the generation in which it got that."""
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """The order of members: those with an instance id first, whose ids stay the same."""
        return (False, self.instance_id) if self.instance_id else (True, self.member_id)


class Assignor(Protocol):
    """A way to share partitions. All members of a group must have one in common, by its name."""

    name: str
    cooperative: bool
    """Whether members keep what stays with them while the group rebalances (KIP-429)."""

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What the member tells the leader besides its topics."""

    def assign(self, members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]) -> Assignment:
        """The partitions of each member. Topics that do not exist are not in `partition_counts`."""


class RangeAssignor:
    """Of each topic a member gets consecutive partitions, so that equal keys of several topics meet."""

    name = RANGE
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        ranked = sorted(members, key=lambda member: member.rank)
        for topic in sorted(partition_counts):
            takers = [member.member_id for member in ranked if topic in member.topics]
            start = 0
            for index, member_id in enumerate(takers):
                share, rest = divmod(partition_counts[topic], len(takers))
                end = start + share + (index < rest)
                assignment[member_id] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return assignment


class RoundRobinAssignor:
    """All partitions of all topics are dealt out one by one."""

    name = ROUND_ROBIN
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        wanted = {topic for member in members for topic in member.topics}
        turns = cycle(sorted(members, key=lambda member: member.rank))
        for tp in _all_partitions({topic: count for topic, count in partition_counts.items() if topic in wanted}):
            taker = next(member for member in turns if tp.topic in member.topics)
            assignment[taker.member_id].append(tp)
        return assignment


class StickyAssignor:
    """Shares evenly, and keeps as much as possible where it is. Everything is revoked while the group rebalances."""

    name = STICKY
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return encode_sticky(owned, generation)

    def assign(self, members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]) -> Assignment:
        had = {member.member_id: decode_sticky(member.user_data) for member in members}
        return assign_sticky(members, partition_counts, had)


class CooperativeStickyAssignor:
    """As the sticky one, and members go on with what they keep. What moves is first given up, and assigned afterwards
    in another round (KIP-429)."""

    name = COOPERATIVE_STICKY
    cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return encode_generation(generation)

    def assign(self, members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]) -> Assignment:
        had = {member.member_id: (member.owned, _generation(member)) for member in members}
        assignment = assign_sticky(members, partition_counts, had)
        owners: dict[TopicPartition, set[str]] = {}
        for member in members:
            for tp in member.owned:
                owners.setdefault(tp, set()).add(member.member_id)
        for member_id, partitions in assignment.items():
            assignment[member_id] = [tp for tp in partitions if owners.get(tp, {member_id}) == {member_id}]
        return assignment


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}

Had = Mapping[str, tuple[Sequence[TopicPartition], int]]
"""What each member had, and in which generation it got that."""


def assign_sticky(members: Sequence[MemberSubscription], partition_counts: Mapping[str, int], had: Had) -> Assignment:
    """Each member keeps its partitions. Partitions without an owner go to the members with the fewest. Then partitions
    move from members with many to members with few, until their numbers are as equal as possible."""
    ranked = sorted(members, key=lambda member: member.rank)
    topics = {member.member_id: member.topics for member in ranked}
    assignment: Assignment = {member.member_id: [] for member in ranked}
    claims = _claims(members, had, partition_counts)
    for tp, member_id in sorted(claims.items()):
        assignment[member_id].append(tp)
    for tp in _all_partitions(partition_counts):
        if tp not in claims:
            takers = [member_id for member_id in assignment if tp.topic in topics[member_id]]
            if takers:
                assignment[min(takers, key=lambda member_id: len(assignment[member_id]))].append(tp)
    while _move_one_round(assignment, topics):
        pass
    return assignment


def _move_one_round(assignment: Assignment, topics: Mapping[str, frozenset[str]]) -> bool:
    """Move one partition from each member with many to one with few. Whether any was moved."""
    moved = False
    for giver in sorted(assignment, key=lambda member_id: -len(assignment[member_id])):
        if len(assignment[giver]) - min(map(len, assignment.values())) < 2:
            break
        for tp in reversed(list(assignment[giver])):
            takers = [member_id for member_id in assignment if tp.topic in topics[member_id]]
            taker = min(takers, key=lambda member_id: len(assignment[member_id]))
            if len(assignment[giver]) - len(assignment[taker]) >= 2:
                assignment[giver].remove(tp)
                assignment[taker].append(tp)
                moved = True
                break
    return moved


def _claims(
    members: Sequence[MemberSubscription], had: Had, partition_counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """Who had each partition. Of two that claim it the one of the newer generation had it; of the same, neither."""
    by_generation = sorted(members, key=lambda member: had[member.member_id][1], reverse=True)
    claims: dict[TopicPartition, str] = {}
    for generation, group in groupby(by_generation, key=lambda member: had[member.member_id][1]):
        del generation
        found: dict[TopicPartition, list[str]] = {}
        for member in group:
            for tp in had[member.member_id][0]:
                if tp.topic in member.topics and 0 <= tp.partition < partition_counts.get(tp.topic, 0):
                    found.setdefault(tp, []).append(member.member_id)
        for tp, claimants in found.items():
            if len(claimants) == 1:
                claims.setdefault(tp, claimants[0])
    return claims


def _generation(member: MemberSubscription) -> int:
    """Older members send it as user data only."""
    return member.generation if member.generation != NO_GENERATION else decode_generation(member.user_data)


def _all_partitions(partition_counts: Mapping[str, int]) -> Iterable[TopicPartition]:
    for topic in sorted(partition_counts):
        for number in range(partition_counts[topic]):
            yield TopicPartition(topic, number)
