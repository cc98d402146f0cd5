"""A partition is led by the first of its replicas that is in sync and alive, and by nobody where none is."""

from __future__ import annotations

from raylog.controller.elections import arrival, departure, elect
from raylog.controller.image import MetadataImage, PartitionImage
from raylog.controller.records import BrokerFenced, BrokerUnfenced, IsrChanged, LeaderChanged
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch
from tests.controller.metadata import ID, OTHER_ID, create, image_of, replay

ZERO, ONE, TWO = BrokerId(0), BrokerId(1), BrokerId(2)


def partition(replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...]) -> PartitionImage:
    return PartitionImage(0, replicas, isr, NO_BROKER_ID, LeaderEpoch(0))


def fence(image: MetadataImage, broker_id: BrokerId, epoch: int) -> None:
    records = list(departure(image, broker_id))
    replay(image, [BrokerFenced(broker_id, epoch), *records])


def unfence(image: MetadataImage, broker_id: BrokerId, epoch: int) -> None:
    records = list(arrival(image, broker_id))
    replay(image, [BrokerUnfenced(broker_id, epoch), *records])


def test_the_first_living_replica_in_sync_is_elected() -> None:
    assert elect(partition((TWO, ONE, ZERO), (ZERO, ONE)), {ZERO, ONE, TWO}) == ONE
    assert elect(partition((TWO, ONE, ZERO), (TWO, ONE, ZERO)), {ZERO}) == ZERO
    assert elect(partition((TWO,), (TWO,)), {ZERO, ONE}) == NO_BROKER_ID


def test_only_partitions_whose_leader_must_change_get_a_new_epoch() -> None:
    image = image_of(0, 1)
    create(image, num_partitions=3)
    create(image, "other", topic_id=OTHER_ID, assignments=[[1]])
    assert list(departure(image, ZERO)) == [
        LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1)),
        LeaderChanged(ID, 2, NO_BROKER_ID, LeaderEpoch(1)),
    ]
    assert list(departure(image, ONE)) == [
        LeaderChanged(ID, 1, NO_BROKER_ID, LeaderEpoch(1)),
        LeaderChanged(OTHER_ID, 0, NO_BROKER_ID, LeaderEpoch(1)),
    ]


def test_a_partition_without_a_leader_is_given_one_when_its_replica_is_back() -> None:
    image = image_of(0)
    create(image, num_partitions=1)
    fence(image, ZERO, 10)
    assert list(departure(image, ZERO)) == []
    assert list(arrival(image, ZERO)) == [LeaderChanged(ID, 0, ZERO, LeaderEpoch(2))]


def test_whoever_goes_leaves_the_isr_and_another_one_leads() -> None:
    image = image_of(0, 1, 2)
    create(image, assignments=[[0, 1, 2], [1, 2, 0]])
    assert list(departure(image, ZERO)) == [
        LeaderChanged(ID, 0, ONE, LeaderEpoch(1), (ONE, TWO)),
        IsrChanged(ID, 1, (ONE, TWO)),
    ]


def test_the_last_one_in_sync_stays_so_and_alone_may_lead_again() -> None:
    image = image_of(0, 1, 2)
    create(image, assignments=[[0, 1, 2]])
    fence(image, ZERO, 10)
    fence(image, ONE, 20)
    assert list(departure(image, TWO)) == [LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(3))]
    fence(image, TWO, 30)
    assert image.topics["t"].partitions[0].isr == (TWO,)
    assert list(arrival(image, ZERO)) == [], "it lacks what the last one has acknowledged"
    unfence(image, ZERO, 10)
    assert list(arrival(image, TWO)) == [LeaderChanged(ID, 0, TWO, LeaderEpoch(4))]


def test_whoever_returns_while_others_lead_changes_nothing() -> None:
    image = image_of(0, 1)
    create(image, assignments=[[0, 1]])
    fence(image, ZERO, 10)
    assert list(arrival(image, ZERO)) == []
