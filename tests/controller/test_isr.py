"""Only the leader of a partition, with its current epoch, may change the ISR, and only live replicas may join."""

from __future__ import annotations

import pytest

from raylog.controller.elections import on_fenced
from raylog.controller.isr import UNKNOWN_BROKER_EPOCH, alter_partition
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import BrokerFenced, BrokerUnfenced, IsrChanged, MetadataRecord
from tests.controller.metadata import ID, OTHER_ID, carry_out, create, image_of, registered, replay

ZERO, ONE, TWO = BrokerId(0), BrokerId(1), BrokerId(2)


@pytest.fixture
def image() -> MetadataImage:
    image = image_of(0, 1, 2)
    create(image, assignments=[[0, 1, 2]])
    return image


def alter(
    image: MetadataImage,
    *isr: tuple[BrokerId, int],
    leader: BrokerId = ZERO,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    partition: int = 0,
    topic: int = ID.int,
) -> Outcome[object, MetadataRecord]:
    topic_id = ID if topic == ID.int else OTHER_ID
    return alter_partition(
        image, leader, topic_id, partition, leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr=isr
    )


def test_an_isr_shrinks_and_grows_in_assignment_order(image: MetadataImage) -> None:
    shrunk = alter(image, (TWO, UNKNOWN_BROKER_EPOCH), (ZERO, 10))
    assert shrunk.records == [IsrChanged(ID, 0, (ZERO, TWO))]
    after = carry_out(image, shrunk)
    assert after == image.topics["t"].partitions[0]
    grown = alter(image, (TWO, 30), (ONE, 20), (ZERO, 10), partition_epoch=1)
    assert carry_out(image, grown) == image.topics["t"].partitions[0]
    assert image.topics["t"].partitions[0].isr == (ZERO, ONE, TWO)


def test_requests_of_other_brokers_and_with_old_epochs_are_refused(image: MetadataImage) -> None:
    carry_out(image, alter(image, (ZERO, 10), (TWO, 30)))
    own = (ZERO, 10)
    for refused, code in (
        ({"topic": 1}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader": TWO}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"leader_epoch": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
    ):
        with pytest.raises(KafkaError) as caught:
            alter(image, own, **{"partition_epoch": 1, **refused})  # type: ignore[arg-type]
        assert caught.value.code is code


def test_an_invalid_isr_is_refused(image: MetadataImage) -> None:
    for isr in ([(ONE, 20)], [(ZERO, 10), (ZERO, 10)], [(ZERO, 10), (BrokerId(9), 1)]):
        with pytest.raises(KafkaError) as caught:
            alter(image, *isr)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_fenced_brokers_and_other_incarnations_may_not_join(image: MetadataImage) -> None:
    replay(image, [BrokerFenced(ONE, 20), *on_fenced(image, ONE)])

    def joins(broker_epoch: int) -> ErrorCode | None:
        try:
            alter(image, (ZERO, 10), (ONE, broker_epoch), (TWO, 30), partition_epoch=1)
        except KafkaError as error:
            return error.code
        return None

    assert joins(20) is ErrorCode.INELIGIBLE_REPLICA, "it is fenced"
    replay(image, [registered(1, epoch=40, incarnation=5)])
    assert joins(40) is ErrorCode.INELIGIBLE_REPLICA, "it has not caught up"
    replay(image, [BrokerUnfenced(ONE, 40)])
    assert joins(20) is joins(UNKNOWN_BROKER_EPOCH) is ErrorCode.INELIGIBLE_REPLICA, "it is another incarnation"
    assert joins(40) is None
