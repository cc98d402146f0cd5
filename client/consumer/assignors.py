"""How the leader of a consumer group shares the partitions among the members. Pure.

Range and round robin give what Kafka's assignors give. The sticky ones share as evenly, and keep as much as possible
where it is; which partition moves is not always the one that Kafka's would move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
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
    numbers = {member.member_id: number for number, member in enumerate(ranked)}
    takers = _takers(ranked, partition_counts)
    owned: list[dict[TopicPartition, None]] = [{} for _ in ranked]
    claims = _claims(members, had, partition_counts)
    for tp, member_id in sorted(claims.items()):
        owned[numbers[member_id]][tp] = None
    for topic in sorted(takers):
        fewest = [(len(owned[member]), member) for member in takers[topic]]
        heapify(fewest)
        for tp in _all_partitions({topic: partition_counts[topic]}):
            if tp not in claims:
                size, member = fewest[0]
                owned[member][tp] = None
                heapreplace(fewest, (size + 1, member))
    _Balance(owned, takers).run()
    return {member_id: list(owned[number]) for member_id, number in numbers.items()}


def _takers(ranked: Sequence[MemberSubscription], partition_counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """By topic, the members that want it, as numbers in their order."""
    found: dict[str, list[int]] = {}
    for number, member in enumerate(ranked):
        for topic in member.topics & partition_counts.keys():
            found.setdefault(topic, []).append(number)
    return {topic: tuple(members) for topic, members in found.items()}


@dataclass(slots=True, eq=False)
class _Takers:
    """At least two members that want the same topics."""

    by_size: list[tuple[int, int]]
    """A heap of (number of partitions, member). Entries with a former number are dropped when they come first."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """A heap of (-number of partitions, member): owners of partitions that no taker had few enough to get."""


class _Balance:
    """Moves one partition after the other, while there is a move from a member to one that has at least two fewer.

    The member with the most gives first: to the one with the fewest, and what it got last. Partitions that only one
    member wants are left out. A member that can give nothing waits until a taker of its partitions has given one. With
    few different subscriptions it takes O((members + partitions + moves) log members).
    """

    def __init__(self, owned: list[dict[TopicPartition, None]], takers: Mapping[str, tuple[int, ...]]) -> None:
        """`owned` are the partitions of each member in the order in which it got them, and are changed."""
        self._owned = owned
        self._sizes = [len(partitions) for partitions in owned]
        self._givers: list[tuple[int, int]] = []
        """A heap of (-number of partitions, member), with former numbers among them."""
        self._wanted: list[list[_Takers]] = [[] for _ in owned]
        """By member, those that it is one of."""
        self._movable: list[dict[_Takers, list[tuple[int, TopicPartition]]]] = [{} for _ in owned]
        """By member, its partitions that others want too, each with a number that grows with each that it gets."""
        self._next_at = sum(self._sizes)
        by_members = {members: self._among(members) for members in set(takers.values()) if len(members) > 1}
        by_topic = {topic: by_members[members] for topic, members in takers.items() if members in by_members}
        for member, partitions in enumerate(owned):
            for at, tp in enumerate(partitions):
                if tp.topic in by_topic:
                    self._movable[member].setdefault(by_topic[tp.topic], []).append((at, tp))

    def run(self) -> None:
        self._givers = [(-size, member) for member, size in enumerate(self._sizes)]
        heapify(self._givers)
        while self._givers:
            size, giver = heappop(self._givers)
            if -size == self._sizes[giver]:
                self._give_one(giver)

    def _among(self, members: tuple[int, ...]) -> _Takers:
        takers = _Takers([(self._sizes[member], member) for member in members])
        heapify(takers.by_size)
        for member in members:
            self._wanted[member].append(takers)
        return takers

    def _give_one(self, giver: int) -> None:
        size = self._sizes[giver]
        movable = self._movable[giver]
        able = [takers for takers in movable if self._fewest(takers)[0] + 2 <= size]
        if not able:
            for takers in movable:
                heappush(takers.waiting, (-size, giver))
            return
        takers = max(able, key=lambda each: movable[each][-1])
        _, tp = movable[takers].pop()
        if not movable[takers]:
            del movable[takers]
        _, taker = self._fewest(takers)
        self._movable[taker].setdefault(takers, []).append((self._next_at, tp))
        self._next_at += 1
        del self._owned[giver][tp]
        self._owned[taker][tp] = None
        self._resize(giver, -1)
        self._resize(taker, 1)

    def _fewest(self, takers: _Takers) -> tuple[int, int]:
        """(number of partitions, member)."""
        by_size = takers.by_size
        while by_size[0][0] != self._sizes[by_size[0][1]]:
            heappop(by_size)
        return by_size[0]

    def _resize(self, member: int, change: int) -> None:
        size = self._sizes[member] = self._sizes[member] + change
        heappush(self._givers, (-size, member))
        for takers in self._wanted[member]:
            heappush(takers.by_size, (size, member))
            while takers.waiting and -takers.waiting[0][0] >= size + 2:
                heappush(self._givers, heappop(takers.waiting))


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
