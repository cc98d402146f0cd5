"""The assignors give each partition to one subscriber, uniform evenly and with few moves, range in order."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from raylog.groupcoord.consumer.assignors import ASSIGNORS, Candidate, range_, uniform
from raylog.groupcoord.consumer.records import NO_PARTITIONS, Partitions

IDS = [UUID(int=number) for number in range(4)]
topics_of = st.dictionaries(st.sampled_from(IDS), st.integers(0, 9)).map(lambda counts: sorted(counts.items()))
subscriptions_of = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]), st.frozensets(st.sampled_from(IDS)), min_size=1
)


def candidates(
    subscriptions: dict[str, frozenset[UUID]], before: dict[str, Partitions] | None = None
) -> dict[str, Candidate]:
    return {name: Candidate(name, ids, (before or {}).get(name, NO_PARTITIONS)) for name, ids in subscriptions.items()}


@given(st.sampled_from(sorted(ASSIGNORS)), subscriptions_of, topics_of, subscriptions_of, topics_of)
def test_each_partition_has_one_subscriber(
    name: str,
    subscriptions: dict[str, frozenset[UUID]],
    topics: list[tuple[UUID, int]],
    subscriptions_before: dict[str, frozenset[UUID]],
    topics_before: list[tuple[UUID, int]],
) -> None:
    before = ASSIGNORS[name](candidates(subscriptions_before), topics_before)
    found = ASSIGNORS[name](candidates(subscriptions, before), topics)
    assert found.keys() == subscriptions.keys()
    wanted = [(topic_id, number) for topic_id, count in topics for number in range(count)]
    wanted = [each for each in wanted if any(each[0] in ids for ids in subscriptions.values())]
    assert sorted(each for partitions in found.values() for each in partitions) == sorted(wanted)
    for member_id, partitions in found.items():
        assert {topic_id for topic_id, _ in partitions} <= subscriptions[member_id]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 40))
def test_uniform_is_even_and_moves_no_more_than_it_must(members: int, members_later: int, count: int) -> None:
    everybody = {f"m{number:02}": frozenset(IDS[:1]) for number in range(max(members, members_later))}
    names = sorted(everybody)
    topics = [(IDS[0], count)]
    before = uniform(candidates({name: everybody[name] for name in names[:members]}), topics)
    after = uniform(candidates({name: everybody[name] for name in names[:members_later]}, before), topics)
    sizes = sorted(len(partitions) for partitions in after.values())
    assert sizes[-1] - sizes[0] <= 1
    stayed = sum(len(after[name] & before.get(name, NO_PARTITIONS)) for name in after)
    least, more = divmod(count, members_later)
    kept = sorted((len(before.get(name, NO_PARTITIONS)) for name in after), reverse=True)
    assert stayed == sum(min(size, least + (place < more)) for place, size in enumerate(kept))


@given(subscriptions_of, topics_of)
def test_uniform_cannot_be_made_more_even_by_moving_one(
    subscriptions: dict[str, frozenset[UUID]], topics: list[tuple[UUID, int]]
) -> None:
    found = uniform(candidates(subscriptions), topics)
    for member_id, partitions in found.items():
        for topic_id in {topic_id for topic_id, _ in partitions}:
            for other, ids in subscriptions.items():
                assert topic_id not in ids or len(partitions) - len(found[other]) <= 1, (member_id, other)


def test_range_assigns_consecutive_partitions_in_the_order_of_the_ids() -> None:
    ids = frozenset(IDS[:2])
    members = {"x": Candidate("1", ids, NO_PARTITIONS), "a": Candidate("2", ids, NO_PARTITIONS)}
    found = range_(members, [(IDS[0], 3), (IDS[1], 2)])
    assert found == {
        "x": frozenset({(IDS[0], 0), (IDS[0], 1), (IDS[1], 0)}),
        "a": frozenset({(IDS[0], 2), (IDS[1], 1)}),
    }
    for partitions in range_(
        {f"m{n}": Candidate(f"{n}", ids, NO_PARTITIONS) for n in range(3)}, [(IDS[0], 20)]
    ).values():
        numbers = sorted(number for _, number in partitions)
        assert all(after - before == 1 for before, after in pairwise(numbers))
