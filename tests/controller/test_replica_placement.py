"""Replicas are spread evenly over brokers and racks, also when some brokers are fenced."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.controller.replica_placement import place
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import BrokerFenced, BrokerUnfenced
from tests.controller.metadata import create, image_of, registered


def image_with_racks(racks: list[str | None]) -> MetadataImage:
    image = MetadataImage()
    for broker_id, rack in enumerate(racks):
        image.replay(replace(registered(broker_id, epoch=10 * broker_id + 10), rack=rack))
        image.replay(BrokerUnfenced(BrokerId(broker_id), 10 * broker_id + 10))
    return image


def test_leaders_rotate_and_followers_are_the_next_brokers() -> None:
    assert place(image_of(0, 1, 2), 6, 2) == [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1)]


def test_the_broker_with_the_fewest_replicas_comes_first() -> None:
    image = image_of(0, 1, 2)
    create(image, assignments=[[0], [0], [1]])
    assert place(image, 1, 2) == [(2, 1)]


def test_replicas_are_on_different_racks_if_possible() -> None:
    image = image_with_racks(["a", "a", "a", "b", "b", "b"])
    placement = place(image, 12, 2)
    assert all(racks(image, replicas) == {"a", "b"} for replicas in placement)
    assert Counter(replicas[0] for replicas in placement) == dict.fromkeys(range(6), 2)
    assert all(racks(image, replicas) == {"a", "b"} for replicas in place(image, 6, 3))


def racks(image: MetadataImage, replicas: tuple[BrokerId, ...]) -> set[str | None]:
    return {image.brokers[broker_id].registration.rack for broker_id in replicas}


def test_fenced_brokers_get_replicas_only_if_live_ones_are_too_few() -> None:
    image = image_of(0, 1, 2, 3)
    for broker_id, epoch in ((1, 20), (3, 40)):
        image.replay(BrokerFenced(BrokerId(broker_id), epoch))
    assert place(image, 3, 2) == [(0, 2), (2, 0), (0, 2)]
    assert place(image, 3, 3) == [(0, 2, 1), (2, 0, 3), (0, 2, 1)]
    assert place(image, 2, 4) == [(0, 2, 1, 3), (2, 0, 3, 1)]
    for broker_id, epoch in ((0, 10), (2, 30)):
        image.replay(BrokerFenced(BrokerId(broker_id), epoch))
    with pytest.raises(KafkaError) as refused:
        place(image, 1, 1)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR, "no broker could lead"


def test_more_replicas_than_brokers_are_refused() -> None:
    for wanted in (0, -2, 3):
        with pytest.raises(KafkaError) as refused:
            place(image_of(0, 1), 1, wanted)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(KafkaError):
        place(image_of(), 1, 1)


@given(
    rack_names=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_replicas_of_a_partition_differ_and_brokers_are_balanced(
    rack_names: list[str | None], partitions: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(rack_names)))
    image = image_with_racks(rack_names)
    placement = place(image, partitions, replication_factor)
    assert len(placement) == partitions
    assert all(len(set(replicas)) == replication_factor for replicas in placement)
    leaders = Counter(replicas[0] for replicas in placement)
    assert max(leaders.values()) - min(leaders[BrokerId(n)] for n in range(len(rack_names))) <= 1
    for replicas in placement:
        assert len(racks(image, replicas)) == min(replication_factor, len(set(rack_names)))


def test_followers_of_one_brokers_partitions_are_spread_over_all_others() -> None:
    placement = place(image_of(0, 1, 2, 3), 12, 2)
    for leader in range(4):
        followers = [replicas[1] for replicas in placement if replicas[0] == leader]
        assert len(set(followers)) == 3
        assert all(one != other for one, other in pairwise(followers))
