"""A partition is led by the first of its replicas in sync that is alive, and by nobody where none is."""

from __future__ import annotations

from raylog.controller.elections import elect, elections_for
from raylog.controller.records import LeaderChanged
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch
from tests.controller.metadata import ID, OTHER_ID, create, image_of

ZERO, ONE, TWO = BrokerId(0), BrokerId(1), BrokerId(2)


def test_the_first_living_one_is_elected() -> None:
    assert elect((TWO, ONE, ZERO), {ZERO, ONE}) == ONE
    assert elect((TWO,), {ZERO, ONE}) == NO_BROKER_ID
    assert elect((), {ZERO}) == NO_BROKER_ID


def test_only_partitions_whose_leader_must_change_get_a_new_epoch() -> None:
    image = image_of(0, 1)
    create(image, num_partitions=3)
    create(image, "other", topic_id=OTHER_ID, assignments=[[1]])
    assert elections_for(image, ZERO, alive={ZERO, ONE}) == []
    assert elections_for(image, ZERO, alive={ONE}) == [
        LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1)),
        LeaderChanged(ID, 2, NO_BROKER_ID, LeaderEpoch(1)),
    ]
    assert elections_for(image, ONE, alive=set()) == [
        LeaderChanged(ID, 1, NO_BROKER_ID, LeaderEpoch(1)),
        LeaderChanged(OTHER_ID, 0, NO_BROKER_ID, LeaderEpoch(1)),
    ]


def test_a_partition_without_a_leader_is_given_one_when_a_replica_is_back() -> None:
    image = image_of(0)
    create(image, num_partitions=1)
    for record in elections_for(image, ZERO, alive=set()):
        image.replay(record)
    assert elections_for(image, ZERO, alive=set()) == []
    assert elections_for(image, ZERO, alive={ZERO}) == [LeaderChanged(ID, 0, ZERO, LeaderEpoch(2))]
