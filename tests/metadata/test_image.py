"""Only replay changes the image, and an impossible record is an invariant violation."""

from __future__ import annotations

import pytest

from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import (
    BrokerFenced,
    BrokerUnfenced,
    ControlledShutdownBegun,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from tests.controller.metadata import ID, OTHER_ID, create, image_of, registered

ZERO = BrokerId(0)


@pytest.fixture
def image() -> MetadataImage:
    image = image_of(0, 1)
    create(image)
    return image


@pytest.mark.parametrize(
    "impossible",
    [
        TopicCreated("t", OTHER_ID),
        TopicDeleted(OTHER_ID),
        PartitionCreated(ID, 5, (ZERO,), ZERO, LeaderEpoch(0)),
        PartitionCreated(OTHER_ID, 0, (ZERO,), ZERO, LeaderEpoch(0)),
        LeaderChanged(ID, 0, ZERO, LeaderEpoch(0)),
        ProducerIdsAllocated(ProducerId(0)),
        registered(0, epoch=10),
        registered(0, epoch=9),
        BrokerFenced(ZERO, 11),
        BrokerUnfenced(BrokerId(9), 10),
        ControlledShutdownBegun(ZERO, 11, Offset(40)),
    ],
)
def test_an_impossible_record_is_an_invariant_violation(image: MetadataImage, impossible: MetadataRecord) -> None:
    with pytest.raises(InvariantViolation):
        image.replay(impossible)


def test_partitions_are_found_by_name_and_by_broker(image: MetadataImage) -> None:
    first = image.partition(TopicPartition("t", 0))
    assert first is not None
    assert first.replicas == (ZERO,)
    assert image.partition(TopicPartition("t", 2)) is None
    assert image.partition(TopicPartition("t", -1)) is None
    assert image.partition(TopicPartition("u", 0)) is None
    assert list(image.partitions_on(ZERO)) == [(TopicPartition("t", 0), ID, first)]


def test_a_registered_broker_is_fenced_until_it_is_unfenced(image: MetadataImage) -> None:
    image.replay(registered(0, epoch=30, incarnation=5))
    assert image.alive == {BrokerId(1)}
    image.replay(BrokerUnfenced(ZERO, 30))
    assert image.alive == {ZERO, BrokerId(1)}
