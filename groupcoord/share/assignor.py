"""The assignor of share groups, `simple`: every partition has a member, and every member a partition.

A partition may have several members: what they get is not its ownership, but where they fetch from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from raylog.groupcoord.consumer.records import Partitions

ASSIGNOR_NAME: Final = "simple"


def assign(subscribers: Mapping[UUID, tuple[str, ...]], partitions: Partitions) -> dict[str, Partitions]:
    """The partitions of each member. `subscribers` are the members of each topic that may get partitions of it.

    The partitions of topics with the same members are dealt out in turn; where there are more members than
    partitions, the partitions are dealt out again, so that the numbers of any two differ by one at most.
    """
    decks: dict[tuple[str, ...], list[tuple[UUID, int]]] = {}
    for topic_id, number in sorted(partitions, key=lambda each: (each[0].int, each[1])):
        members = tuple(sorted(subscribers.get(topic_id, ())))
        if members:
            decks.setdefault(members, []).append((topic_id, number))
    assigned: dict[str, set[tuple[UUID, int]]] = {}
    for members, deck in sorted(decks.items()):
        for turn in range(max(len(members), len(deck))):
            assigned.setdefault(members[turn % len(members)], set()).add(deck[turn % len(deck)])
    return {member_id: frozenset(mine) for member_id, mine in assigned.items()}
